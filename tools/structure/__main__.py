"""Checks the structure of the repository: `python tools/structure`.

- The top-level modules of each Rust crate import each other without cycles.
- Pure crates do not depend on tokio, files, sockets, threads or the clock.
- Retired names (`tools/retired-names.txt`) are not declared again.
- No public type name is declared twice in a crate, in the crates below `core/`, or in a package.
- Comments of Rust files and Markdown have at most 100 columns.

Import cycles of the Python package are found by import-linter (`bindings-python/pyproject.toml`), and
those of the TypeScript package by Biome (`biome.json`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from structure import cycles, line_width, names, purity
from structure.rust import Crate

#: Directories of the crates that must be pure.
PURE = ["core/config", "core/policy", "core/protocol", "core/tokens"]
#: What `clippy.toml` of a pure crate contains.
PURE_CLIPPY = Path("tools/pure-crate.clippy.toml")
RETIRED = Path("tools/retired-names.txt")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _groups(files: list[Path], crates: dict[Path, str]) -> dict[str, list[Path]]:
    """Returns the files by the area in which a public type name must be unique, such as `core`.

    `crates` has the name of each crate by its directory. Files outside of all areas are left out.
    """
    groups = defaultdict(list)
    for file in files:
        if file.is_relative_to("bindings-python/python/tidegate") and file.suffix == ".py":
            groups["bindings-python/python"].append(file)
        elif file.is_relative_to("bindings-node/ts"):
            groups["bindings-node/ts"].append(file)
        for crate in crates:
            if file.suffix == ".rs" and file.is_relative_to(crate / "src"):
                groups["core" if crate.parts[0] == "core" else f"{crate}/src"].append(file)
    return groups


def main() -> int:
    """Runs all checks, and prints the problems that they find to stderr.

    Returns the exit status: 1 if there is a problem, otherwise 0.
    """
    os.chdir(Path(__file__).resolve().parents[2])
    metadata: dict[str, Any] = json.loads(
        _output(os.environ.get("CARGO", "cargo"), "metadata", "--format-version", "1", "--locked", "--quiet")
    )
    members = set(metadata["workspace_members"])
    crates = {
        Path(package["manifest_path"]).parent.relative_to(Path.cwd()): package["name"]
        for package in metadata["packages"]
        if package["id"] in members
    }
    files = [Path(name) for name in _output("git", "ls-files", "-co", "--exclude-standard").splitlines()]
    files = [file for file in files if file.is_file()]
    problems = []
    for crate in sorted(crates):
        problems += cycles.report(Crate(crate))
    for directory in map(Path, PURE):
        problems += purity.report(metadata, crates[directory], directory, PURE_CLIPPY)
    problems += names.retired(RETIRED, files)
    problems += names.declared_twice(_groups(files, crates))
    problems += line_width.report(files)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
