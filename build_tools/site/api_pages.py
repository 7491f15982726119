"""mkdocs hook: generates a reference page for each public sub-package."""

import itertools

from mkdocs.structure.files import File

from build_tools.site.public_names import PACKAGE, PublicModule, modules

_SECTION = "Reference"


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
    lines = [f"# {module.path}", "", module.text, "", "| name | |", "|---|---|"]
    lines += [f"| [`{one.name}`][{one.path}] | {_summary(one.text)} |" for one in module.names]
    for text, names in _groups(module):
        if text:
            lines += ["", f"## {_summary(text)}", "", text.partition("\n")[2]]
        for one in names:
            lines += ["", f"::: {one.path}", "    options:"]
            lines += [f"      heading_level: {3 if text else 2}"]
    return "\n".join(lines)


def _groups(module: PublicModule):
    """Returns the functions grouped by defining module, with the docstring of each module.

    If the package has classes, all its names form one group without a docstring.
    """
    if not all(one.name.islower() for one in module.names):
        return [("", module.names)]
    groups = itertools.groupby(module.names, key=lambda one: one.module_text)
    return [(text, list(names)) for text, names in groups]


def _summary(text: str) -> str:
    return text.partition("\n")[0].rstrip(".").replace("|", "\\|")
