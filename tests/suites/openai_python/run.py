"""Runs openai-python's own tests with and without the gate's transport, and prints the differences.

    python tests/suites/openai_python/run.py CHECKOUT --wheel WHEEL [PYTEST_ARGUMENT ...]
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
from suite_results import Verdict, differences, read, print_differences, print_totals, run_logged  # noqa: E402 - beside this directory, which is no package

RUNS = ("observe", "keep-observe", "enforce", "keep-enforce")


class Suite:
    """The test suite in a checkout of openai-python, and the paths of what it needs.

    The folder `.suite` in the checkout has the dependencies, the mock server and the reports.
    """

    def __init__(self, checkout: Path) -> None:
        """Stores the paths. Installs nothing."""
        self.checkout = checkout
        self.place = checkout / ".suite"
        self.python = self.place / "venv/bin/python"

    def install(self, wheel: Path) -> None:
        """Installs the dependencies in the suite's lock file, the wheel, and the mock server."""
        tools = self.place / "tools"
        subprocess.run([sys.executable, "-m", "venv", tools], check=True)
        subprocess.run([tools / "bin/python", "-m", "pip", "install", "--quiet", "uv"], check=True)
        uv = tools / "bin/uv"
        environment = {
            **os.environ,
            "UV_PROJECT_ENVIRONMENT": str(self.python.parents[1]),
            "UV_PYTHON": sys.executable,
            "UV_PYTHON_DOWNLOADS": "never",
        }
        sync = [uv, "sync", "--quiet", "--locked", "--all-extras"]
        subprocess.run(sync, cwd=self.checkout, env=environment, check=True)
        install = [uv, "pip", "install", "--quiet", "--reinstall", "--no-deps", "--python", self.python, wheel]
        subprocess.run(install, env=environment, check=True)
        wanted = json.loads((self.checkout / "package.json").read_text())["devDependencies"]["@stdy/cli"]
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", self.place, f"@stdy/cli@{wanted}"]
        subprocess.run(npm, check=True)

    def run(self, name: str, arguments: list[str], *, gated: bool) -> dict[str, Verdict]:
        """Runs the suite once, and returns the verdicts by test name.

        If `gated` is false, the suite runs as it is. If `gated` is true, its clients use gates, and
        `name` selects the run of the plugin `gate_plugin`. `arguments` are passed to pytest.
        """
        report, count = self.place / f"{name}.xml", self.place / f"{name}.count"
        report.unlink(missing_ok=True)
        count.unlink(missing_ok=True)
        environment = {**os.environ, "DEFER_PYDANTIC_BUILD": "false"}
        plugin: list[str] = []
        if gated:
            environment |= {"PYTHONPATH": str(HERE), "TIDEGATE_SUITE_RUN": name, "TIDEGATE_SUITE_COUNT": str(count)}
            plugin = ["-p", "gate_plugin"]
        command = [self.python, "-m", "pytest", "-q", "-n", "2", *plugin, f"--junitxml={report}", *arguments]
        run_logged(command, self.checkout, environment, self.place / f"{name}.log")
        verdicts = read(report)
        print_totals(name, verdicts, count if gated else None)
        return verdicts


def main() -> int:
    """Runs the suite without a gate and with gates, and prints the differences.

    Returns the exit status: 1 if a test ends differently without a known reason, otherwise 0.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="a checkout of github.com/openai/openai-python")
    parser.add_argument("--wheel", type=Path, required=True, help="our wheel (make .venv/.wheel builds out/wheel/)")
    parser.add_argument("--run", action="append", choices=RUNS, help="may be repeated (default: all)")
    options, arguments = parser.parse_known_args()
    suite = Suite(options.checkout.resolve())
    suite.install(options.wheel.resolve())
    unexplained = 0
    with serving(suite.checkout, suite.place):
        stock = suite.run("stock", arguments, gated=False)
        for name in options.run or RUNS:
            found = differences(stock, suite.run(name, arguments, gated=True))
            unexplained += print_differences(found, REASONS[name])
    print(f"{unexplained} differences without a reason")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
