"""Runs the own tests of openai-python or anthropic-sdk-python with and without gates, and prints the differences.

    python tests/suites/python_sdk/run.py CHECKOUT --wheel WHEEL [PYTEST_ARGUMENT ...]

The checkout may be a clone, or the unpacked source distribution of a release.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from known_differences import REASONS  # noqa: E402
from mock_server import SPECIFICATION, serving  # noqa: E402
from python_suite import RUNS, Suite, add_arguments  # noqa: E402 - beside this directory, which is no package

# The mock server of a checkout that names none.
_MOCK = "0.22.2"
_WORKERS = ["-n", "2"]


def _package(checkout: Path) -> str:
    """Returns the package of HTTP clients on which the SDK in the checkout depends."""
    project = (checkout / "pyproject.toml").read_text()
    return "httpx2" if re.search(r'^\s*"httpx2\b[^"]*",$', project.partition("[project.")[0], re.MULTILINE) else "httpx"


def _install(suite: Suite, wheel: Path) -> None:
    """Installs the dependencies in the suite's lock file, the wheel, and the mock server."""
    tools = suite.place / "tools"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    subprocess.run([tools / "bin/python", "-m", "pip", "install", "--quiet", "uv"], check=True)
    environment = {
        **os.environ,
        "UV_PROJECT_ENVIRONMENT": str(suite.python.parents[1]),
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
    }
    sync = [tools / "bin/uv", "sync", "--quiet", "--locked", "--all-extras"]
    subprocess.run(sync, cwd=suite.checkout, env=environment, check=True)
    suite.install_gate(wheel)
    named = [suite.checkout / "package.json", suite.checkout / "scripts/mock"]
    texts = "".join(path.read_text() for path in named if path.exists())
    version = re.search(r'@stdy/cli[@": ]+([\d.]+)', texts)
    mock = f"@stdy/cli@{version[1] if version else _MOCK}"
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", suite.place, mock]
    subprocess.run(npm, check=True)


def main() -> int:
    """Runs the suite without a gate and with gates, and prints the differences.

    Returns the exit status: 1 if a test ends differently without a known reason, otherwise 0.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_arguments(parser, "openai-python or anthropic-sdk-python")
    parser.add_argument(
        "--specification",
        type=Path,
        help=f"the API's specification for the mock server (default: {SPECIFICATION} in the checkout). Without one, "
        "the tests of the API's resources, which need the server, are left out",
    )
    options, arguments = parser.parse_known_args()
    checkout: Path = options.checkout.resolve()
    suite = Suite(checkout, _package(checkout), {"DEFER_PYDANTIC_BUILD": "false"})
    _install(suite, options.wheel.resolve())
    runs, reasons = options.run or list(RUNS), REASONS[_name(checkout)]
    specification = (options.specification or checkout / SPECIFICATION).resolve()
    if not specification.exists():
        print(f"{specification} does not exist: tests/api_resources is left out")
        return suite.compare(runs, reasons, [*_WORKERS, "--ignore=tests/api_resources", *arguments])
    with serving(checkout, suite.place, specification) as url:
        suite.environment["TEST_API_BASE_URL"] = url
        return suite.compare(runs, reasons, [*_WORKERS, *arguments])


def _name(checkout: Path) -> str:
    """Returns the name of the SDK in the checkout."""
    return next(name for name in REASONS if (checkout / "src" / name).is_dir())


if __name__ == "__main__":
    sys.exit(main())
