"""Comment lines of Rust files and lines of Markdown that are wider than the limit."""

from __future__ import annotations

import re
from pathlib import Path

#: The limit in columns.
MAX_COLUMNS = 100
#: Files that are generated.
GENERATED = ("docs/reference/", "bench/RESULTS.md", "bench/pool/results.md")

_COMMENT = re.compile(r"\s*//[/!]?( |$)")
_COMMENT_MARK = re.compile(r"^\s*//[/!]?")
#: Lines that cannot be broken: tables, links, images, headings, quoted output and HTML.
_UNBREAKABLE = re.compile(r"\s*([|#<>!]|\[[^\]]+\]:)")
_CODE_SPAN = re.compile(r"`[^`]*`")


def _can_break(line: str) -> bool:
    """Returns whether a line contains a space outside of code spans at which it can be broken."""
    text = _COMMENT_MARK.sub("", line)
    return not _UNBREAKABLE.match(text) and len(_CODE_SPAN.sub("x", text).split()) > 2


def _too_wide(file: Path, text: str) -> list[str]:
    is_markdown, found, is_code = file.suffix == ".md", [], False
    for number, line in enumerate(text.splitlines(), 1):
        is_text = is_markdown or bool(_COMMENT.match(line))
        is_fence = is_text and line.strip().lstrip("/!").strip().startswith("```")
        is_code = is_text and is_code != is_fence
        if is_text and not is_code and len(line) > MAX_COLUMNS and _can_break(line):
            found.append(f"{file}:{number}: {len(line)} columns; comments and Markdown have at most {MAX_COLUMNS}")
    return found


def report(files: list[Path]) -> list[str]:
    """Returns a message for each comment line and each line of Markdown that is too wide."""
    checked = [file for file in files if file.suffix in (".md", ".rs") and not file.as_posix().startswith(GENERATED)]
    return [problem for file in checked for problem in _too_wide(file, file.read_text())]
