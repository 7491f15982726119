"""The public names of tf_largeout for the reference, read without importing tf_largeout."""

import ast
import functools
import pathlib
from typing import Any, NamedTuple

import griffe

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "tf_largeout"


class PublicName(NamedTuple):
    """A public class or function.

    Attributes:
        path: The path that users import, such as "tf_largeout.layers.LargeOutput".
        text: Its docstring.
        module_text: Docstring of the module that defines it.
    """

    path: str
    text: str
    module_text: str

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


class PublicModule(NamedTuple):
    """A sub-package: its docstring and its public classes and functions."""

    path: str
    text: str
    names: list[PublicName]


@functools.cache
def modules() -> list[PublicModule]:
    """Returns the package, if it has public names, and its public sub-packages."""
    package = griffe.load(PACKAGE, search_paths=[ROOT], allow_inspection=False)
    members = _public_members(package)
    found = [_module(PACKAGE, package)]
    found += [_module(f"{PACKAGE}.{name}", one) for name, one in members if one.is_module]
    return [module for module in found if module.names]


def _module(path, module):
    return PublicModule(path, _docstring(module), list(_names(path, module)))


def _names(path, module):
    for name, member in _public_members(module):
        path_of_name = f"{path}.{name}"
        if member.is_module and name in member.members:
            # A function with the same name as its module hides the module from users, but not
            # from griffe.
            path_of_name, member = f"{path_of_name}.{name}", member.members[name]
        if member.is_class or member.is_function:
            yield PublicName(path_of_name, _docstring(member), _docstring(member.module))


def _public_members(module) -> list[tuple[str, Any]]:
    """Returns the members in `__all__`, or if there is none, those imported as `a as a`."""
    names = module.exports or _imported_as_themselves(module.filepath)
    members = [(str(name), module.members[str(name)]) for name in names]
    return [(name, one.final_target if one.is_alias else one) for name, one in members]


def _imported_as_themselves(path):
    """Returns the names `a` that the module imports by `from x import a as a`."""
    nodes = ast.walk(ast.parse(path.read_text()))
    aliases = [one for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names]
    return [alias.asname for alias in aliases if alias.asname == alias.name]


def _docstring(member):
    return member.docstring.value if member.docstring else ""
