"""Checks each relative link in the committed Markdown files: the file and heading must exist."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def main() -> int:
    """Prints each broken link.

    Returns the exit status: 1 if there is a broken link, otherwise 0.
    """
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    broken = 0
    for name in listed.stdout.split():
        file = ROOT / name
        text = CODE.sub("", FENCE.sub("", file.read_text(encoding="utf-8")))
        for match in LINK.finditer(text):
            link = unquote(match[1] or match[2])
            problem = None if re.match(r"[a-z]+:", link) else find_problem(file, link)
            if problem:
                broken += 1
                print(f"{name}: {link}: {problem}")
    return 1 if broken else 0


def find_problem(file: Path, link: str) -> str | None:
    """Returns `no such file` or `no such heading` for a broken link in `file`, otherwise None."""
    path, _, anchor = link.partition("#")
    target = (file.parent / path).resolve() if path else file
    if not target.exists():
        return "no such file"
    if anchor and target.suffix == ".md" and anchor not in headings(target):
        return "no such heading"
    return None


@cache
def headings(file: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub and MkDocs create them."""
    text = FENCE.sub("", file.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in plain}


if __name__ == "__main__":
    sys.exit(main())
