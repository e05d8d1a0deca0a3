"""Tests of what `import tidegate` imports. Each runs a program in its own process."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidegate

# Modules that `import tidegate` must not import, each because of the time that it takes.
SLOW = {
    "asyncio",
    "concurrent.futures",
    "dataclasses",
    "datetime",
    "difflib",
    "httpx",
    "httpx2",
    "inspect",
    "logging",
    "pathlib",
    "sniffio",
    "socket",
    "ssl",
    "subprocess",
    "tidegate._adapters",
    "tidegate._litellm",
    "tidegate._map",
    "tidegate._sweep",
    "tidegate._transport",
    "tidegate.config",
    "tidegate.snapshot",
    "tidegate.testing",
    "trio",
}


def run(script: str) -> list[str]:
    # Without the site module, which may import packages on its own.
    paths = [path for path in sys.path if path]
    arguments = [sys.executable, "-S", "-c", f"import sys\nsys.path[:] = {paths!r}\n{script}"]
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.split()


def test_import_of_the_package_imports_no_slow_module() -> None:
    imported = run("import tidegate\nprint(*sys.modules)")
    assert "tidegate._native" in imported
    assert SLOW.isdisjoint(imported)


def test_deferred_name_is_imported_when_it_is_first_used() -> None:
    imported = run("import tidegate\nassert tidegate.Why is tidegate.Why\nprint(*sys.modules)")
    assert "tidegate._explain" in imported
    assert "tidegate._sweep" not in imported


@pytest.mark.parametrize("name", tidegate.__all__)
def test_public_name_is_listed_and_can_be_imported_first(name: str) -> None:
    assert run(f"import tidegate\nassert {name!r} in dir(tidegate)\nfrom tidegate import {name}\nprint('yes')") == [
        "yes"
    ]


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tidegate' has no attribute 'Gat'"):
        tidegate.Gat  # noqa: B018
