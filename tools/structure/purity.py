"""Checks pure crates, which must not use an async runtime, files, sockets, threads or the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from structure.rust import Crate

_FORBIDDEN_MODULES = ("std::fs", "std::net", "std::thread", "std::process", "tokio")
_CLOCKS = ("Instant::now", "SystemTime::now")


def dependencies(metadata: dict[str, Any], name: str) -> dict[str, str]:
    """Returns the crates that the crate `name` links with, directly or indirectly.

    The keys are the names of these crates, and each value is the name of a crate that depends on
    the key. `metadata` is the output of `cargo metadata`.
    """
    packages = {package["id"]: package["name"] for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    start = next(package for package in metadata["workspace_members"] if packages[package] == name)
    found: dict[str, str] = {}
    pending = [start]
    while pending:
        package = pending.pop()
        for dependency in nodes[package]["deps"]:
            target = packages[dependency["pkg"]]
            # `None` is a normal dependency; those of tests and build scripts are not linked.
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]) and target not in found:
                found[target] = packages[package]
                pending.append(dependency["pkg"])
    return found


def report(metadata: dict[str, Any], name: str, directory: Path, clippy: Path) -> list[str]:
    """Returns a description of each violation of the rules for pure crates in one crate.

    Violations are a dependency on tokio, a use of a forbidden module or clock, and a `clippy.toml`
    that differs from the file `clippy`. `name` and `directory` are those of the crate.
    """
    problems = []
    linked = dependencies(metadata, name)
    if "tokio" in linked:
        problems.append(f"{directory}: depends on tokio, by way of {linked['tokio']}")
    own = directory / "clippy.toml"
    if not own.exists() or own.read_text() != clippy.read_text():
        problems.append(f"{own}: is not a copy of {clippy} (or a link to it)")
    for source in Crate(directory).sources:
        for use in source.uses():
            path = "::".join(use.path)
            if any(f"{path}::".startswith(f"{module}::") for module in _FORBIDDEN_MODULES):
                problems.append(f"{use.file}:{use.line}: uses {path}")
        for number, line in enumerate(source.text.splitlines(), 1):
            problems += [f"{source.file}:{number}: calls {clock}" for clock in _CLOCKS if clock in line]
    return problems
