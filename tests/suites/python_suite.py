"""Runs the test suite of a Python package with and without a gate, for any package that uses httpx."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from suite_results import Verdict, differences, print_differences, print_totals, read, run_logged

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

RUNS = ("observe", "keep-observe", "enforce", "keep-enforce")
# pytest's exit status if tests have failed. Higher ones mean that it did not run all tests.
_TESTS_FAILED = 1
_PLUGIN = Path(__file__).resolve().parent / "python_gate"


class Suite:
    """The test suite in a checkout, and the paths of what it needs.

    The folder `.suite` in the checkout has the dependencies and the reports.
    """

    def __init__(self, checkout: Path, package: str, environment: Mapping[str, str] | None = None) -> None:
        """Stores the settings. Installs nothing.

        Args:
            checkout: The folder of the sources.
            package: The package of the clients: `httpx` or `httpx2`.
            environment: Additional environment variables of each run.

        """
        self.checkout = checkout
        self.place = checkout / ".suite"
        self.python = self.place / "venv/bin/python"
        self.package = package
        self.environment = {**os.environ, **(environment or {})}

    def create_environment(self) -> None:
        """Creates the environment in `.suite` unless it exists, without packages."""
        if not self.python.exists():
            subprocess.run([sys.executable, "-m", "venv", self.place / "venv"], check=True)

    def install(self, *arguments: str | Path) -> None:
        """Installs packages into the environment. `arguments` are those of `pip install`."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet"]
        subprocess.run([*pip, *arguments], cwd=self.checkout, check=True)

    def install_gate(self, wheel: Path) -> None:
        """Installs a wheel of Tidegate into the environment."""
        self.install("--force-reinstall", "--no-deps", wheel)

    def run(self, name: str, arguments: list[str], *, gated: bool) -> dict[str, Verdict]:
        """Runs the suite once, and returns the verdicts by test name.

        If `gated` is false, the suite runs as it is. If `gated` is true, its clients use gates, and
        `name` selects the run of the plugin `gate_plugin`. `arguments` are passed to pytest. Failed
        tests run a second time, because some have time limits that a busy machine exceeds.
        """
        count = self.place / f"{name}.count"
        count.write_text("")
        environment = self.environment
        command = ["-o", f"cache_dir={self.place / name}-cache", *arguments]
        if gated:
            environment = environment | {
                "PYTHONPATH": str(_PLUGIN),
                "TIDEGATE_SUITE_PACKAGE": self.package,
                "TIDEGATE_SUITE_RUN": name,
                "TIDEGATE_SUITE_COUNT": str(count),
            }
            command += ["-p", "gate_plugin"]
        verdicts = self._pytest(name, command, environment)
        failed = {test for test, verdict in verdicts.items() if verdict.outcome == "failed"}
        if failed:
            again = self._pytest(f"{name}-again", [*command, "--last-failed"], environment)
            verdicts.update({test: verdict for test, verdict in again.items() if test in failed})
        print_totals(name, verdicts, count if gated else None)
        for test in sorted(test for test in failed if verdicts[test].outcome == "passed"):
            print(f"  passed only when it was run again: {test}")
        return verdicts

    def _pytest(self, name: str, arguments: list[str], environment: Mapping[str, str]) -> dict[str, Verdict]:
        """Runs pytest with a report and a log in `.suite`, and returns the verdicts by test name."""
        report, log = self.place / f"{name}.xml", self.place / f"{name}.log"
        report.unlink(missing_ok=True)
        command = [self.python, "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
        status = run_logged(command, self.checkout, dict(environment), log)
        if status > _TESTS_FAILED:
            raise SystemExit(f"{name}: pytest ended with status {status} before its end; see {log}")
        return read(report)

    def compare(self, runs: list[str], reasons: Mapping[str, Mapping[str, str]], arguments: list[str]) -> int:
        """Runs the suite without a gate and with gates, and prints the differences.

        `reasons` has the known reasons of each run, see `print_differences`. Returns the exit
        status: 1 if a test ends differently without a known reason, otherwise 0.
        """
        unexplained = 0
        stock = self.run("stock", arguments, gated=False)
        for name in runs:
            found = differences(stock, self.run(name, arguments, gated=True))
            unexplained += print_differences(found, reasons[name])
        print(f"{unexplained} differences without a reason")
        return 1 if unexplained else 0


def add_arguments(parser: argparse.ArgumentParser, repository: str) -> None:
    """Adds the arguments that each suite takes."""
    parser.add_argument("checkout", type=Path, help=f"the sources of {repository}, with its tests")
    parser.add_argument("--wheel", type=Path, required=True, help="our wheel (make .venv/.wheel builds out/wheel/)")
    parser.add_argument("--run", action="append", choices=RUNS, help="may be repeated (default: all)")
