"""Finds import cycles between the top-level modules of a crate."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structure.rust import Crate, Use

Imports = dict[str, dict[str, list["Use"]]]


def imports(crate: Crate) -> Imports:
    """Returns, by module and imported module, the places of the import.

    Both are top-level modules of the crate.
    """
    modules, reexports = crate.modules(), crate.reexports()
    edges: Imports = defaultdict(lambda: defaultdict(list))
    for source in crate.sources:
        for use in source.uses():
            # The root imports its modules, and is no part of a cycle.
            if not use.module or use.path[0] != "crate" or len(use.path) == 1:
                continue
            name = use.path[1]
            target = name if name in modules else reexports.get(name)
            if target and target != use.module[0]:
                edges[use.module[0]][target].append(use)
    return edges


def components(edges: Imports) -> list[list[str]]:
    """Returns each group of two or more modules that import each other in a cycle.

    `edges` is the result of `imports`. The function uses Tarjan's algorithm.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(edges.get(module, ())):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            component = []
            while not component or component[-1] != module:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return found


def report(crate: Crate) -> list[str]:
    """Returns one text for each group of modules that import each other, with their imports."""
    edges = imports(crate)
    problems = []
    for component in components(edges):
        lines = [f"{crate.directory}: {len(component)} modules import each other: {', '.join(component)}"]
        for module in component:
            for target in sorted(set(edges[module]) & set(component)):
                uses = edges[module][target]
                places = ", ".join(f"{use.file}:{use.line} ({'::'.join(use.path[1:])})" for use in uses[:3])
                more = f", and {len(uses) - 3} more" if len(uses) > 3 else ""
                lines.append(f"  {module} -> {target}: {places}{more}")
        problems.append("\n".join(lines))
    return problems
