"""Reads Rust sources: a crate's modules, the paths that they use, and their declarations."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^']*|[^\\'\n])'""",
    re.DOTALL,
)
_TEST_ITEM = re.compile(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]")
_MODULE = re.compile(r"\bmod\s+(\w+)\s*([;{])")
_USE = re.compile(r"\buse\s+([^;]+);")
_PATH = re.compile(r"(?<![\w:])\$?(?:crate|self|super|std|core|tokio)(?:\s*::\s*\w+)+")
_DECLARATION = re.compile(
    r"(?P<public>\bpub\s+)?(?:\b(?:const|async|unsafe|extern)\s+)*"
    r"\b(?P<kind>fn|struct|enum|union|trait|type|const|static|mod|macro_rules!)\s+(?:mut\s+)?(?P<name>[A-Za-z]\w*)"
)
_FIELD = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?([a-z]\w*)\s*:\s*[^:=]", re.MULTILINE)
_VARIANT = re.compile(r"^\s*([A-Z]\w*)\s*(?:[,({=]|$)", re.MULTILINE)


def without_comments(text: str, *, strings: bool = False) -> str:
    """Returns the text with comments replaced by spaces. Line numbers do not change.

    If `strings` is false, string literals are replaced too.
    """

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if strings and not found.startswith("/"):
            return found
        return re.sub(r"[^\n]", " ", found)

    return _TOKEN.sub(blank, text)


def _end_of_block(text: str, start: int) -> int:
    """Returns the position after the closing brace of the block whose opening brace is at `start`.

    Returns the end of the text if the block is not closed.
    """
    depth = 0
    for at in range(start, len(text)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return at + 1
    return len(text)


def without_tests(text: str) -> tuple[str, set[str]]:
    """Returns the text with test-only items replaced by spaces, and the names of test-only modules.

    A test-only module may be in a file of its own, which the caller then has to exclude.
    """
    modules = set()
    while match := _TEST_ITEM.search(text):
        rest = text[match.end() :]
        ends = [rest.find(mark) for mark in ";{" if mark in rest]
        at = match.end() + (min(ends) if ends else len(rest) - 1)
        end = at + 1 if text[at] == ";" else _end_of_block(text, at)
        item = text[match.start() : end]
        if declared := _MODULE.search(item):
            modules.add(declared.group(1))
        text = text[: match.start()] + re.sub(r"[^\n]", " ", item) + text[end:]
    return text, modules


@dataclass(frozen=True)
class Use:
    """A place in a source file where the module `module` imports or names the item `path`.

    `path` starts with `crate` or with the name of another crate.
    """

    file: Path
    line: int
    module: tuple[str, ...]
    path: tuple[str, ...]


class Source:
    """One source file of a crate.

    `raw` is its text. In `text`, comments, strings and tests are replaced by spaces.
    """

    def __init__(self, file: Path, module: tuple[str, ...]) -> None:
        self.file = file
        self.module = module
        self.raw = file.read_text()
        self.text, self.test_modules = without_tests(without_comments(self.raw))
        self._inline = [
            (match.start(), _end_of_block(self.text, match.end() - 1), match.group(1))
            for match in _MODULE.finditer(self.text)
            if match.group(2) == "{"
        ]

    def _module_at(self, at: int) -> tuple[str, ...]:
        return self.module + tuple(name for start, end, name in self._inline if start < at < end)

    def _line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def uses(self) -> list[Use]:
        """Returns every path that the file imports or names, as an absolute path."""
        found = []
        rest = self.text
        for match in _USE.finditer(self.text):
            for path in _expand(match.group(1)):
                found.append(self._use(match.start(), path))
            rest = rest[: match.start()] + " " * len(match.group()) + rest[match.end() :]
        for match in _PATH.finditer(rest):
            path = [part.strip() for part in match.group().lstrip("$").split("::")]
            found.append(self._use(match.start(), path))
        return found

    def _use(self, at: int, path: list[str]) -> Use:
        module = self._module_at(at)
        return Use(self.file, self._line(at), module, _resolve(module, path))

    def declarations(self) -> list[tuple[int, str, str, bool]]:
        """Returns each declared item, field and variant: line, kind, name, and whether public.

        The kind is the keyword of the item (such as `struct`), `field` or `variant`. Fields and
        variants count as not public.
        """
        found = []
        for match in _DECLARATION.finditer(self.text):
            kind, name = match.group("kind"), match.group("name")
            line = self._line(match.start("name"))
            found.append((line, kind, name, bool(match.group("public"))))
            brace = self.text.find("{", match.end())
            semicolon = self.text.find(";", match.end())
            if kind in ("struct", "enum") and brace != -1 and not -1 < semicolon < brace:
                body = self.text[brace + 1 : _end_of_block(self.text, brace) - 1]
                for pattern in (_FIELD, _VARIANT) if kind == "enum" else (_FIELD,):
                    for inner in pattern.finditer(body):
                        line = self._line(brace + 1 + inner.start(1))
                        found.append((line, "field" if pattern is _FIELD else "variant", inner.group(1), False))
        return found


def _expand(tree: str) -> list[list[str]]:
    """Returns the paths that a `use` tree imports, each as a list of segments."""
    tree = re.sub(r"\s+as\s+\w+", "", tree).strip()
    brace = tree.find("{")
    if brace == -1:
        return [[part.strip() for part in tree.strip(":").split("::")]]
    prefix = [part.strip() for part in tree[:brace].split("::") if part.strip()]
    inner = tree[brace + 1 : tree.rindex("}")]
    paths, depth, start = [], 0, 0
    for at, mark in enumerate(inner + ","):
        if mark == "," and depth == 0:
            if part := inner[start:at].strip():
                paths.extend(prefix + path for path in _expand(part))
            start = at + 1
        depth += {"{": 1, "}": -1}.get(mark, 0)
    return paths


def _resolve(module: tuple[str, ...], path: list[str]) -> tuple[str, ...]:
    """Returns the absolute form of a path that is used in `module`.

    The absolute path starts with `crate` or with the name of another crate.
    """
    parts = list(path)
    if parts[0] in ("self", "super"):
        base = list(module)
        while parts and parts[0] in ("self", "super"):
            if parts.pop(0) == "super" and base:
                base.pop()
        return ("crate", *base, *parts)
    return tuple(parts)


class Crate:
    """The source files of a crate, without its tests."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        source = directory / "src"
        files = sorted(source.rglob("*.rs"))
        sources = [Source(file, _module_of(file.relative_to(source))) for file in files]
        tests = [(*each.module, name) for each in sources for name in each.test_modules]
        self.sources = [each for each in sources if not any(each.module[: len(test)] == test for test in tests)]

    def reexports(self) -> dict[str, str]:
        """Returns the names that the crate's root imports from its top-level modules.

        The value of each name is the name of its module.
        """
        modules = self.modules()
        found = {}
        for source in self.sources:
            if source.module:
                continue
            for use in source.uses():
                path = use.path[1:] if use.path[0] == "crate" else use.path
                if len(path) > 1 and path[0] in modules:
                    found[path[-1]] = path[0]
        return found

    def modules(self) -> set[str]:
        """Returns the names of the crate's top-level modules."""
        return {source.module[0] for source in self.sources if source.module}


def _module_of(file: Path) -> tuple[str, ...]:
    parts = list(file.with_suffix("").parts)
    if parts[-1] == "mod" or parts in (["lib"], ["main"]):
        parts.pop()
    return tuple(parts)
