"""Tests of the warning under gevent and eventlet, where a waiting call blocks all green threads."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

import tidegate

LIBRARIES = {"gevent.monkey": "is_module_patched", "eventlet.patcher": "is_monkey_patched"}


def install(name: str, patched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs a stand-in for the module `name` of a library that has replaced the modules `patched`."""
    module = ModuleType(name)
    setattr(module, LIBRARIES[name], patched.__contains__)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("name", LIBRARIES)
def test_gate_warns_if_sockets_are_patched(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(name, ["socket"], monkeypatch)
    file = tmp_path / "tidegate.toml"
    file.write_text('mode = "enforce"\n')
    for create in (lambda: tidegate.Gate(), lambda: tidegate.Gate.from_file(file)):  # noqa: PLW0108
        with pytest.warns(RuntimeWarning, match=rf"{name.partition('.')[0]}.*gthread") as warned:
            create()
        assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.parametrize("name", LIBRARIES)
def test_gate_does_not_warn_if_sockets_are_not_patched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(name, ["os"], monkeypatch)
    tidegate.Gate()  # Warnings are errors in tests.
