"""The reference page of the simulator's settings, derived from its Rust sources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).resolve().parents[2] / "sim/src"

INTRODUCTION = """# Simulator

`tidegate sim` simulates a vLLM deployment over HTTP. `--config FILE` reads its settings and `--faults FILE` the faults
to inject, both as JSON. Every key is optional unless its meaning says otherwise, and an unknown key is an error.

```json
{
  "workers": 1,
  "models": ["gpt-4o-mini"],
  "faults": { "concurrency_limit": 12, "limits_retry_after_s": 1 }
}
```

`POST /sim/faults` replaces the faults at run time; its body has the keys of `faults`."""

#: The documentation of a type or a field, its attributes, and the declaration that follows them.
TYPE = re.compile(r"^((?:/// .*\n|///\n)+)(?:#\[.*\]\n)*pub (?:struct|enum) (\w+) \{\n((?:.*\n)*?)\}", re.MULTILINE)
FIELD = re.compile(r"^    ((?:///.*\n\s*)+)(?:#\[.*\]\n\s*)*(?:pub (\w+): (.+)|(\w+)),$", re.MULTILINE)


class Field(NamedTuple):
    """A field of a struct, or a variant of an enum, which has no type."""

    name: str
    type: str
    doc: str


class Type(NamedTuple):
    """A struct or an enum that JSON sets, with its fields or variants."""

    doc: str
    fields: list[Field]


def simulator() -> str:
    """Returns the Markdown page of the keys of `SimConfig`, and of each type that they refer to."""
    types = {name: read for path in sorted(SOURCES.rglob("*.rs")) for name, read in types_in(path.read_text("utf-8"))}
    parts, paths = [INTRODUCTION], {"SimConfig": ""}
    for name in list(walk(types, "SimConfig", paths)):
        doc, fields = types[name]
        parts.append(f"## `{paths[name]}`" if paths[name] else "## Settings")
        parts += [shown(paragraph, types, paths) for paragraph in doc.split("\n")]
        rows = [f"| `{field.name}` | {shown(field.doc, types, paths)} |" for field in fields]
        parts.append("\n".join([f"| {'key' if fields[0].type else 'text'} | meaning |", "|---|---|", *rows]))
    return "\n\n".join(part for part in parts if part)


def types_in(source: str) -> list[tuple[str, Type]]:
    """Returns the documented public structs and enums of a Rust source, each with its name."""
    found = []
    for doc, name, body in TYPE.findall(source):
        fields = [
            Field(field or snake_case(variant), kind, text(about))
            for about, field, kind, variant in FIELD.findall(body)
        ]
        if fields:
            found.append((name, Type(text(doc), fields)))
    return found


def walk(types: dict[str, Type], name: str, paths: dict[str, str]) -> Iterator[str]:
    """Yields the name of a type and then, recursively, the names of the types of its fields.

    Adds to `paths` the keys under which each type is set, for example `engine.step`.
    """
    yield name
    for field in types[name].fields:
        for inner in re.findall(r"\w+", field.type):
            if inner in types and inner not in paths:
                paths[inner] = f"{paths[name]}.{field.name}".lstrip(".")
                yield from walk(types, inner, paths)


def text(comment: str) -> str:
    """Returns the paragraphs of a documentation comment, one line each."""
    lines = [line.strip().removeprefix("///").strip() for line in comment.strip().splitlines()]
    return "\n".join(" ".join(paragraph.split("\n")) for paragraph in "\n".join(lines).split("\n\n"))


def shown(doc: str, types: dict[str, Type], paths: dict[str, str]) -> str:
    """Returns a paragraph in terms of JSON, without the sentences that refer to other Rust items."""

    def key(link: re.Match[str]) -> str:
        owner, _, item = link[1].rpartition("::")
        if owner.rpartition("::")[2] in paths and any(
            field.name == snake_case(item) for field in types[owner.rpartition("::")[2]].fields
        ):
            return f"`{snake_case(item)}`"
        if not owner and item.islower():
            return f"`{item}`"
        return f"`{paths[item]}`" if item in paths else link[0]

    sentences = re.split(r"(?<=[.;]) (?=[A-Z0-9`\[\"])", re.sub(r"\[`([\w:]+)`\](?:\([\w:]+\))?", key, doc))
    kept = " ".join(sentence for sentence in sentences if "[`" not in sentence)
    return kept.replace("`None`", "`null`").replace("|", "\\|")


def snake_case(name: str) -> str:
    """Returns a name in camel case as JSON has it, in snake case."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
