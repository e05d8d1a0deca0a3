"""Checks names: retired names are not declared again, and no public type name is declared twice.

A line of the list of retired names is `OLD -> NEW  (AREA)`. `AREA` says where OLD is retired:

- `PATH PART...`: in sources below PATH (`.` is the repository) whose path has each PART as a
  directory or as a file name, with or without its ending. OLD is the name of an item, field,
  variant, class, function or attribute, or of a file (with its ending) or module.
- `key`: as a configuration key, in configuration sources and TOML files.
- `flag`: as a command-line flag, written `--like-this`.
- `metric`: as the name of a metric.

Blank lines and lines that start with `#` are ignored.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from structure.rust import Source, without_comments

_ENTRY = re.compile(r"(?P<old>\S+)\s+->\s+(?P<new>.+?)\s+\((?P<area>[^)]+)\)$")
_TYPESCRIPT = re.compile(
    r"(?P<export>\bexport\s+)?(?:declare\s+|abstract\s+|async\s+)*"
    r"\b(?P<kind>function\*?|class|interface|type|enum|const|let|var)\s+(?P<name>[A-Za-z_$][\w$]*)"
    r"|^\s+(?:(?:readonly|static|async|get|set|private|protected|public)\s+)*#?(?P<member>[A-Za-z_$][\w$]*)"
    r"(?:\??:\s|\([^\n]*\{$)",
    re.MULTILINE,
)
_TYPESCRIPT_TYPES = ("class", "interface", "type", "enum")
_RUST_TYPES = ("struct", "enum", "union", "trait", "type")


@dataclass(frozen=True)
class Declaration:
    """A name that a source file declares, with the line of the declaration.

    `is_public_type` is whether it is the name of a public type, which must be unique.
    """

    line: int
    name: str
    is_public_type: bool


@dataclass(frozen=True)
class Retired:
    """An entry of the list of retired names.

    `line` is its line in the list, `old` the retired name, and `new` the replacement. `area` has
    the words of the area in which `old` is retired (see the module).
    """

    line: int
    old: str
    new: str
    area: tuple[str, ...]


def read_retired(file: Path) -> list[Retired]:
    """Returns the entries of the list of retired names.

    Raises `ValueError` for a malformed line.
    """
    entries = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _ENTRY.match(line.strip())
        if match is None:
            message = f"{file}:{number}: expected `OLD -> NEW  (AREA)`, found: {line}"
            raise ValueError(message)
        area = tuple(match["area"].replace(":", " ").replace(",", " ").split())
        entries.append(Retired(number, match["old"], match["new"], area))
    return entries


@cache
def declarations(file: Path) -> tuple[Declaration, ...]:
    """Returns the names that a Rust, Python or TypeScript file declares. Other files have none."""
    if file.suffix == ".rs":
        source = Source(file, ())
        return tuple(
            Declaration(line, name, public and kind in _RUST_TYPES)
            for line, kind, name, public in source.declarations()
        )
    if file.suffix in (".py", ".pyi"):
        return tuple(_python(ast.parse(file.read_text()), at_top=True))
    if file.suffix == ".ts":
        return tuple(_typescript(file.read_text()))
    return ()


def _python(tree: ast.AST, *, at_top: bool) -> list[Declaration]:
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            found.append(Declaration(node.lineno, node.name, at_top and not node.name.startswith("_")))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(Declaration(node.lineno, node.name, False))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, (ast.Name, ast.Attribute)):
                    name = target.id if isinstance(target, ast.Name) else target.attr
                    found.append(Declaration(target.lineno, name, False))
        elif isinstance(node, ast.arg):
            found.append(Declaration(node.lineno, node.arg, False))
        found.extend(_python(node, at_top=False))
    return found


def _typescript(text: str) -> list[Declaration]:
    text = without_comments(text)
    return [
        Declaration(
            text.count("\n", 0, match.start("name" if match["name"] else "member")) + 1,
            match["name"] or match["member"],
            bool(match["export"]) and match["kind"] in _TYPESCRIPT_TYPES,
        )
        for match in _TYPESCRIPT.finditer(text)
    ]


@cache
def _strings(file: Path) -> tuple[tuple[int, str], ...]:
    """Returns the string literals of a source file, without their quotes, with the line of each."""
    text = file.read_text(errors="replace")
    if file.suffix == ".rs":
        text = without_comments(text, strings=True)
    literal = re.compile(r'"((?:\\.|[^"\\\n])*)"|\'([^\'\\\n]*)\'')
    return tuple(
        (text.count("\n", 0, match.start()) + 1, match[1] if match[1] is not None else match[2])
        for match in literal.finditer(text)
    )


def _in_area(file: Path, area: tuple[str, ...]) -> bool:
    if area[0] != "." and not file.is_relative_to(area[0]):
        return False
    return all(part in (*file.parts, file.stem) for part in area[1:])


def _key(entry: Retired, files: list[Path]) -> list[str]:
    name = entry.old.rsplit(".", 1)[-1]
    found = []
    for file in files:
        if file.suffix == ".toml" and file.name not in ("Cargo.toml", "pyproject.toml"):
            pattern = re.compile(rf"^\s*(?:[\w.\"-]+\.)?{re.escape(name)}\s*=", re.MULTILINE)
            text = file.read_text()
            found += [f"{file}:{text.count(chr(10), 0, match.start()) + 1}" for match in pattern.finditer(text)]
        elif file.suffix in (".rs", ".py", ".ts") and "config" in (*file.parts, file.stem):
            if file.suffix == ".rs":
                lines = [line for line, text in _strings(file) if text == name]
            else:
                lines = [each.line for each in declarations(file) if each.name == name]
            found += [f"{file}:{line}" for line in lines]
    return found


def _flag(entry: Retired, files: list[Path]) -> list[str]:
    pattern = re.compile(rf"{re.escape(entry.old)}(?![\w-])")
    field = entry.old.lstrip("-").replace("-", "_")
    found = []
    for file in files:
        if file.suffix in (".rs", ".py", ".ts"):
            found += [f"{file}:{line}" for line, text in _strings(file) if pattern.search(text)]
            if file.suffix == ".rs" and "#[arg" in file.read_text():
                found += [f"{file}:{each.line}" for each in declarations(file) if each.name == field]
    return found


def _metric(entry: Retired, files: list[Path]) -> list[str]:
    pattern = re.compile(rf"(?<!\w){re.escape(entry.old)}(?!\w)")
    sources = [file for file in files if file.suffix in (".rs", ".py", ".ts", ".json")]
    return [f"{file}:{line}" for file in sources for line, text in _strings(file) if pattern.search(text)]


def _declared(entry: Retired, files: list[Path]) -> list[str]:
    found = []
    for file in files:
        if file.suffix not in (".rs", ".py", ".pyi", ".ts") or not _in_area(file, entry.area):
            continue
        if entry.old in (file.name, file.stem) or str(file).endswith(f"/{entry.old}"):
            found.append(str(file))
        found += [f"{file}:{each.line}" for each in declarations(file) if each.name == entry.old]
    return found


def retired(file: Path, files: list[Path]) -> list[str]:
    """Returns a description of each place in `files` that declares or uses a retired name.

    `file` is the list of retired names.
    """
    kinds = {"key": _key, "flag": _flag, "metric": _metric}
    problems = []
    for entry in read_retired(file):
        kind = kinds.get(entry.area[0])
        if kind is None and not Path(entry.area[0]).exists():
            problems.append(f"{file}:{entry.line}: area {entry.area[0]} is no path of the repository")
            continue
        problems += [
            f"{place}: {entry.old} is retired, use {entry.new} ({file}:{entry.line})"
            for place in (kind or _declared)(entry, files)
        ]
    return problems


def declared_twice(groups: dict[str, list[Path]]) -> list[str]:
    """Returns a description of each public type name that is declared twice in a group of files.

    `groups` has the files of each group by its name.
    """
    problems = []
    for group, files in sorted(groups.items()):
        places = defaultdict(list)
        for file in files:
            for each in declarations(file):
                if each.is_public_type:
                    places[each.name].append(f"{file}:{each.line}")
        problems += [
            f"{group}: the public type {name} is declared {len(at)} times: {', '.join(at)}"
            for name, at in sorted(places.items())
            if len(at) > 1
        ]
    return problems
