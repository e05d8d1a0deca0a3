"""Tests of the structure checks.

Each check finds a planted violation, and accepts correct sources.
"""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from structure import cycles, line_width, names, purity
from structure.rust import Crate


class InScratchDirectory(unittest.TestCase):
    """Base class of tests that write a small repository into an empty directory."""

    def setUp(self) -> None:
        """Creates an empty directory, and makes it the current directory."""
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, Path.cwd())
        os.chdir(scratch.name)

    def write(self, files: dict[str, str]) -> list[Path]:
        """Writes files, given as text by path. Returns their paths."""
        for name, text in files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text)
        names.declarations.cache_clear()
        names._strings.cache_clear()
        return [Path(name) for name in files]


class CyclesTest(InScratchDirectory):
    """Tests of the rule that Rust modules do not import each other in a cycle."""

    def cycles(self, **modules: str) -> list[str]:
        """Returns the problems that the check finds in a crate with the given modules.

        `modules` has the source text of each module by its name.
        """
        root = "pub use b::{self, Exported};\n" + "".join(f"mod {name};\n" for name in modules)
        self.write({"k/src/lib.rs": root, **{f"k/src/{name}.rs": text for name, text in modules.items()}})
        return cycles.report(Crate(Path("k")))

    def test_finds_a_cycle_and_names_both_imports(self) -> None:
        found = self.cycles(a="use crate::b::{self, x::Y};", b="\nfn f() -> super::a::Z {}")
        self.assertEqual(len(found), 1)
        self.assertIn("k: 2 modules import each other: a, b", found[0])
        self.assertIn("a -> b: k/src/a.rs:1 (b::self), k/src/a.rs:1 (b::x::Y)", found[0])
        self.assertIn("b -> a: k/src/b.rs:2 (a::Z)", found[0])

    def test_finds_a_cycle_through_a_name_that_the_root_exports(self) -> None:
        self.assertEqual(len(self.cycles(a="use crate::Exported;", b="use crate::a::Z;")), 1)

    def test_accepts_imports_in_one_direction(self) -> None:
        self.assertEqual(self.cycles(a="use crate::b::Y;", b="use std::fmt;"), [])

    def test_ignores_tests_comments_and_strings(self) -> None:
        tests = '#[cfg(test)]\nmod tests { use crate::a::Z; }\n// crate::a::Z\nconst S: &str = "crate::a::Z";'
        self.assertEqual(self.cycles(a="use crate::b::Y;", b=tests), [])

    def test_ignores_a_file_that_only_tests_include(self) -> None:
        self.write({"k/src/b/tests.rs": "use crate::a::Z;"})
        self.assertEqual(self.cycles(a="use crate::b::Y;", b="#[cfg(test)]\nmod tests;"), [])


class PurityTest(InScratchDirectory):
    """Tests of the rule that pure crates use no tokio, files, sockets, threads or clocks."""

    def problems(self, source: str, *, kind: str | None = "dev", clippy: str = "same") -> list[str]:
        """Returns the problems that are found in a crate with this source.

        The crate depends on the crate `middle`, which depends on tokio. `kind` is the kind of the
        dependency on `middle`: `dev`, or None for a normal one. `clippy` is the text of the crate's
        `clippy.toml`; the required text is `same`.
        """
        self.write({"p/src/lib.rs": source, "p/clippy.toml": clippy, "pure.toml": "same"})

        def node(name: str, target: str, kind: str | None) -> dict[str, Any]:
            return {"id": name, "deps": [{"pkg": target, "dep_kinds": [{"kind": kind}]}]}

        metadata = {
            "packages": [{"id": name, "name": name} for name in ("pure", "middle", "tokio")],
            "workspace_members": ["pure"],
            "resolve": {
                "nodes": [node("pure", "middle", kind), node("middle", "tokio", None), {"id": "tokio", "deps": []}]
            },
        }
        return purity.report(metadata, "pure", Path("p"), Path("pure.toml"))

    def test_accepts_a_pure_crate(self) -> None:
        self.assertEqual(self.problems("use std::time::Instant;\nuse std::collections::HashMap;"), [])

    def test_finds_an_indirect_dependency_on_tokio(self) -> None:
        self.assertEqual(self.problems("", kind=None), ["p: depends on tokio, by way of middle"])

    def test_finds_files_sockets_threads_and_clocks(self) -> None:
        for planted in (
            "use std::fs;",
            "fn f() { std::net::TcpStream::connect(a); }",
            "use std::{fmt, thread::spawn};",
        ):
            self.assertRegex(self.problems(planted)[0], r"^p/src/lib.rs:1: uses std::(fs|net|thread)")
        self.assertEqual(self.problems("\nlet t = Instant::now();"), ["p/src/lib.rs:2: calls Instant::now"])

    def test_finds_a_crate_without_its_clippy_configuration(self) -> None:
        self.assertEqual(
            self.problems("", clippy="other"), ["p/clippy.toml: is not a copy of pure.toml (or a link to it)"]
        )


class RetiredNamesTest(InScratchDirectory):
    """Tests of the rule that retired identifiers are not declared again."""

    def retired(self, entry: str, **files: str) -> list[str]:
        """Returns the places that the check reports for one entry of the list of retired names.

        `files` has the source text of each file by its path. In the paths, `__` stands for `/`, and
        the last `_` for the dot before the file's extension.
        """
        paths = self.write({".".join(name.replace("__", "/").rsplit("_", 1)): text for name, text in files.items()})
        self.write({"list": f"# a comment\n\n{entry}\n"})
        return [problem.split(": ")[0] for problem in names.retired(Path("list"), paths)]

    def test_finds_items_fields_variants_and_modules_of_rust(self) -> None:
        entry = "Door -> Admission  (core)"
        self.assertEqual(self.retired(entry, core__a_rs="pub(crate) struct Door;"), ["core/a.rs:1"])
        self.assertEqual(self.retired(entry, core__a_rs="enum E {\n    Door(u8),\n}"), ["core/a.rs:2"])
        entry = "door -> admission  (core)"
        self.assertEqual(self.retired(entry, core__a_rs="struct S {\n    pub door: u8,\n}"), ["core/a.rs:2"])
        self.assertEqual(self.retired(entry, core__a__door_rs=""), ["core/a/door.rs"])
        self.assertEqual(self.retired("door.rs -> admit.rs  (core)", core__door_rs=""), ["core/door.rs"])

    def test_finds_names_of_python_and_typescript(self) -> None:
        entry = "told -> dynamic  (.)"
        self.assertEqual(self.retired(entry, a_py="class C:\n    told: int"), ["a.py:2"])
        self.assertEqual(self.retired(entry, a_py="def f(told): ..."), ["a.py:1"])
        self.assertEqual(self.retired(entry, a_ts="interface I {\n  told?: number;\n}"), ["a.ts:2"])
        self.assertEqual(self.retired(entry, a_ts="class C {\n  told(): void {\n  }\n}"), ["a.ts:2"])

    def test_finds_keys_flags_and_metrics(self) -> None:
        self.assertEqual(
            self.retired("pool.told -> pool.dynamic  (key)", example_toml="[t.pool]\ntold = 1"), ["example.toml:2"]
        )
        self.assertEqual(
            self.retired("pool.told -> pool.dynamic  (key)", core__config__p_rs='k("told")'), ["core/config/p.rs:1"]
        )
        self.assertEqual(self.retired("--kept-back -> --held  (flag)", a_rs='x("use --kept-back=1")'), ["a.rs:1"])
        self.assertEqual(
            self.retired("--kept -> --held  (flag)", a_rs="struct A {\n    #[arg(long)]\n    kept: bool,\n}"),
            ["a.rs:3"],
        )
        self.assertEqual(
            self.retired("t_old_total -> t_new_total  (metric)", a_rs='const M: &str = "t_old_total";'), ["a.rs:1"]
        )

    def test_accepts_other_names_other_areas_and_prose(self) -> None:
        entry = "Door -> Admission  (core: admission)"
        self.assertEqual(self.retired(entry, core__admission__a_rs="// struct Door;\nstruct Doors;"), [])
        self.assertEqual(self.retired(entry, core__other_rs="struct Door;", sim__admission_rs="struct Door;"), [])
        self.assertEqual(self.retired("--kept -> --held  (flag)", a_rs='x("--kept-back")'), [])

    def test_finds_an_area_that_does_not_exist(self) -> None:
        self.assertEqual(self.retired("a -> b  (nowhere)", a_rs=""), ["list:3"])

    def test_refuses_a_line_that_it_cannot_read(self) -> None:
        with self.assertRaisesRegex(ValueError, "expected `OLD -> NEW"):
            self.retired("Door Admission")


class DeclaredTwiceTest(InScratchDirectory):
    """Tests of the rule that no public type name is declared twice."""

    def test_finds_a_public_type_that_is_declared_twice(self) -> None:
        for one, other in (
            ({"a.rs": "pub struct State;"}, {"b.rs": "pub enum State { A }"}),
            ({"a.py": "class State: ..."}, {"b.py": "class State: ..."}),
            ({"a.ts": "export interface State {}"}, {"b.ts": "export type State = 1;"}),
        ):
            found = names.declared_twice({"group": self.write({**one, **other})})
            self.assertEqual(len(found), 1, found)
            self.assertIn("group: the public type State is declared 2 times: a.", found[0])

    def test_accepts_private_types_and_other_groups(self) -> None:
        files = self.write({"a.rs": "pub struct State;", "b.rs": "pub(crate) struct State;\nstruct State;"})
        self.assertEqual(names.declared_twice({"group": files}), [])
        files = self.write({"a.rs": "pub struct State;", "b.rs": "pub struct State;"})
        self.assertEqual(names.declared_twice({"one": files[:1], "other": files[1:]}), [])


class LineWidth(InScratchDirectory):
    """Tests of the check of comment and Markdown lines."""

    def test_wide_text_is_found(self) -> None:
        """Text is found in comments and Markdown. Code, tables and lines without spaces are not."""
        wide = "word " * 21
        comments = f"/// {wide}\n/// ```\n/// {wide}\n/// ```\n    // {wide}\n/// | {wide}|\n//! {wide}\n"
        text = f"fn f() {{}} // {wide}\n{comments}"
        files = self.write({"a.rs": text, "b.md": f"{wide}\n```\n{wide}\n```\n[a]: {'b' * 120}\n", "c.py": wide})
        problems = [problem.split(" ")[0] for problem in line_width.report(files)]
        self.assertEqual(problems, ["a.rs:2:", "a.rs:6:", "a.rs:8:", "b.md:1:"])


if __name__ == "__main__":
    unittest.main()
