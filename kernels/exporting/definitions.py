"""Copies of definitions and their dependencies."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from typing import NamedTuple

FUTURE = "from __future__ import annotations"


class Definition(NamedTuple):
    module: str
    name: str


class ModuleSource:
    """Definitions and imports of a module, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        text = inspect.getsource(import_module(name))
        self._lines = text.splitlines()
        self.statements: dict[str, ast.stmt] = {}
        self.imports: dict[str, str] = {}
        self.origins: dict[str, Definition] = {}
        for statement in ast.parse(text).body:
            self._record(statement)

    def _record(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self._record_import(statement)
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            self.statements[statement.name] = statement
        elif isinstance(statement, ast.AnnAssign):
            self._record_target(statement.target, statement)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._record_target(target, statement)

    def _record_target(self, target: ast.expr, statement: ast.stmt) -> None:
        if isinstance(target, ast.Name):
            self.statements[target.id] = statement

    def _record_import(self, statement: ast.Import | ast.ImportFrom) -> None:
        for alias in statement.names:
            name = alias.asname or alias.name
            if isinstance(statement, ast.Import):
                self.imports[name] = ast.unparse(ast.Import([alias]))
            elif statement.level:
                package = self.name.rsplit(".", statement.level)[0]
                self.origins[name] = Definition(
                    f"{package}.{statement.module}", alias.name
                )
            else:
                self.imports[name] = ast.unparse(
                    ast.ImportFrom(statement.module, [alias], 0)
                )

    def text_of(self, statement: ast.stmt) -> str:
        """Return the source of a statement, with its decorators."""
        first = min(
            [
                statement.lineno,
                *(node.lineno for node in getattr(statement, "decorator_list", [])),
            ]
        )
        return "\n".join(self._lines[first - 1 : statement.end_lineno])


@cache
def source_of(module: str) -> ModuleSource:
    return ModuleSource(module)


def with_all_used(
    definitions: Iterable[Definition],
) -> tuple[set[Definition], set[str]]:
    """Return definitions with their dependencies, and import statements."""
    used: set[Definition] = set()
    imports: set[str] = set()
    pending = list(definitions)
    while pending:
        definition = pending.pop()
        if definition in used:
            continue
        used.add(definition)
        source = source_of(definition.module)
        for name in names_in(source.statements[definition.name]):
            if name in source.statements:
                pending.append(Definition(definition.module, name))
            elif name in source.origins:
                pending.append(source.origins[name])
            elif name in source.imports:
                imports.add(source.imports[name])
    return used, imports


def names_in(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def copied_source(definitions: Iterable[Definition]) -> str:
    """Return the source of a module with definitions and their dependencies."""
    used, imports = with_all_used(definitions)
    modules_by_name: dict[str, str] = {}
    for module, name in sorted(used):
        if modules_by_name.setdefault(name, module) != module:
            raise ValueError(
                f"{name!r} is defined in {module} and {modules_by_name[name]}; rename one."
            )
    sections = [FUTURE, "\n".join(sorted(imports))]
    for module in modules_in_order({module for module, _ in used}):
        source = source_of(module)
        statements = {
            id(source.statements[name]): source.statements[name]
            for place, name in used
            if place == module
        }
        for statement in sorted(statements.values(), key=lambda node: node.lineno):
            sections.append(source.text_of(statement))
    return "\n\n\n".join(sections) + "\n"


def modules_in_order(modules: set[str]) -> list[str]:
    """Sort modules so that each follows its imports."""
    graph = {}
    for module in sorted(modules):
        imported = {origin.module for origin in source_of(module).origins.values()}
        graph[module] = sorted(imported & modules - {module})
    return list(TopologicalSorter(graph).static_order())
