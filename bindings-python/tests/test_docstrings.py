"""Checks that public items have docstrings, and runs the examples in them."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import openai
import pytest

import tidegate
import tidegate.snapshot
import tidegate.testing
from tidegate.testing import FakeTarget

MODULES = [tidegate, tidegate.snapshot, tidegate.testing]
# Blocks that start with "```python no-run" need a server or a package that the tests have not.
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def public_items() -> Iterator[tuple[str, Any]]:
    """Yields the name and the object of each public module, item and method of the package."""
    for module in MODULES:
        yield module.__name__, module
        for name in module.__all__:
            item = getattr(module, name)
            yield f"{module.__name__}.{name}", item
            if inspect.isclass(item) and item.__module__.startswith("tidegate.") and "_native" not in item.__module__:
                for member, value in vars(item).items():
                    if not member.startswith("_") and callable(getattr(item, member)):
                        yield f"{module.__name__}.{name}.{member}", getattr(value, "__func__", value)


def examples() -> Iterator[Any]:
    for name, item in public_items():
        for number, block in enumerate(EXAMPLE.findall(inspect.getdoc(item) or "")):
            yield pytest.param(textwrap.dedent(block), id=f"{name}-{number}")


async def converse() -> str:
    return "hello"


async def query() -> list[int]:
    return [1, 2]


@pytest.mark.parametrize("code", list(examples()))
def test_example_in_a_docstring_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    targets = {"openai": {"url": "https://api.openai.com"}, "bedrock": {"url": "none"}, "llama": {"pool": {}}}
    gate = tidegate.Gate(targets=targets, tools={"db": 8})
    client = gate.wrap(openai.AsyncOpenAI())
    names: dict[str, Any] = {
        "tidegate": tidegate,
        "gate": gate,
        "client": client,
        "ClientError": ConnectionError,
        "converse": converse,
        "query": query,
        "rows": lambda: [{"messages": [{"role": "user", "content": "hello"}]}],
        "save": lambda *_: None,
    }

    async def my_agent() -> str:
        return (await client.responses.create(model="gpt-4o", input="Say hello.")).output_text

    names["my_agent"] = my_agent
    compiled = compile(code, "<docstring>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with nullcontext() if "installed()" in code else FakeTarget().installed():
        if inspect.CO_COROUTINE & compiled.co_flags:
            asyncio.run(eval(compiled, names))
        else:
            exec(compiled, names)
        for name, value in list(names.items()):
            if name.startswith("test_"):
                value()


def test_stub_of_slot_has_the_docstrings_of_the_native_class() -> None:
    stub = Path(__file__).parents[1] / "python/tidegate/_native.pyi"
    classes = [node for node in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
    (slot,) = (node for node in classes if node.name == "Slot")
    assert words(ast.get_docstring(slot)) == words(inspect.getdoc(tidegate.Slot))
    for method in slot.body:
        if isinstance(method, ast.FunctionDef):
            native = inspect.getdoc(getattr(tidegate.Slot, method.name))
            assert words(ast.get_docstring(method)) == words(native), method.name


def words(docstring: str | None) -> list[str]:
    """Returns the words of a docstring, which must exist."""
    assert docstring
    return docstring.split()


@pytest.mark.parametrize(
    ("name", "item"), [pytest.param(name, item, id=name) for name, item in public_items() if inspect.isroutine(item)]
)
def test_docstring_names_each_parameter(name: str, item: Any) -> None:
    doc = inspect.getdoc(item)
    assert doc, f"{name} has no docstring"
    parameters = inspect.signature(item).parameters.keys() - {"self", "cls"}
    missing = [parameter for parameter in parameters if not re.search(rf"^ +\**{parameter}: ", doc, re.MULTILINE)]
    assert not missing
