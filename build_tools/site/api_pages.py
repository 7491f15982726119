"""mkdocs hook: generates a reference page for each public sub-package."""

import itertools

from mkdocs.structure.files import File

from build_tools.site.public_names import PACKAGE, PublicModule, PublicName, modules

_SECTION = "Reference"

# These names are at the start of their pages, in this order.
_FIRST = ("LargeOutput", "FactoredOutput", "HierarchicalOutput")
# Base classes and interfaces. Only authors of layers, losses, samplers and indexes need them.
_INTERFACES = frozenset(
    (
        *("ClassMatrix", "ClassOutput", "ClassScorer", "OutputTag"),
        *("Candidates", "NormalizationLoss", "SampledLoss", "SphericalLoss", "TaggedLoss"),
        *("HardNegativeSampler", "HeadAndTail", "SampledValues", "Sampler", "StaticSampler"),
        *("ClassLists", "ClassScores", "ListIndex"),
    )
)
_INTERFACES_TITLE = "Base classes and interfaces"
# Methods that only the library calls.
_INTERNAL = (
    *("absolute", "add_slots", "add_variable_from_reference", "as_products", "as_read"),
    *("best_of", "capped", "changed_attributes", "dots_and_rows", "draw_after", "each_replica"),
    *("exact_scores", "follow", "head_and_tail", "known_cross_entropies"),
    *("known_statistics", "learning_batch", "lists", "mean_logits"),
    *("next_seed", "of_pool", "on_rows_changed", "ranked_scores", "ranking_by", "release"),
    *("require_built", "require_free", "require_rows", "scale_value", "shards", "spheres"),
    *("take_loss", "top_k_of", "uncapped", "width_of"),
)
# Methods that authors of subclasses need. Only the base classes show them.
_OF_INTERFACES = ("queries", "search", "variables")


def on_config(config):
    """Adds the pages to the navigation."""
    pages = [{module.path.removeprefix(f"{PACKAGE}."): _file(module)} for module in modules()]
    section = next(part for part in config.nav if _SECTION in part)
    section[_SECTION] = pages
    return config


def on_files(files, config):
    """Adds the generated pages to the site."""
    for module in modules():
        files.append(File.generated(config, _file(module), content=_page(module)))
    return files


def _file(module: PublicModule) -> str:
    return f"reference/{module.path.removeprefix(f'{PACKAGE}.')}.md"


def _page(module: PublicModule) -> str:
    groups = _groups(module)
    lines = [f"# {module.path}", "", module.text, "", "| name | |", "|---|---|"]
    lines += [
        f"| [`{one.name}`][{one.path}] | {_summary(one.text)} |"
        for _, names in groups
        for one in names
    ]
    for text, names in groups:
        if text:
            lines += ["", f"## {_summary(text)}", "", text.partition("\n")[2]]
        for one in names:
            lines += ["", f"::: {one.path}", "    options:"]
            lines += [f"      heading_level: {3 if text else 2}"]
            lines += [f"      filters: {_filters(one)}"]
    return "\n".join(lines)


def _filters(one: PublicName) -> list[str]:
    hidden = _INTERNAL if one.name in _INTERFACES else _INTERNAL + _OF_INTERFACES
    return ["!^_", f"!^({'|'.join(hidden)})$"]


def _groups(module: PublicModule):
    """Returns groups of names, each with its description.

    Functions are grouped by the module that defines them, with the docstring of this module. If
    the package has classes, the first group has no description, and the second group has the
    base classes and interfaces.
    """
    if not all(one.name.islower() for one in module.names):
        own = [one for one in module.names if one.name not in _INTERFACES]
        own.sort(key=lambda one: _FIRST.index(one.name) if one.name in _FIRST else len(_FIRST))
        interfaces = [one for one in module.names if one.name in _INTERFACES]
        return [("", own)] + [(_INTERFACES_TITLE, interfaces)] * bool(interfaces)
    groups = itertools.groupby(module.names, key=lambda one: one.module_text)
    return [(text, list(names)) for text, names in groups]


def _summary(text: str) -> str:
    return text.partition("\n")[0].rstrip(".").replace("|", "\\|")
