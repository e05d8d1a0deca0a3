"""Runs httpx's own tests with and without gates, and prints the differences.

python tests/suites/python_httpx/run.py CHECKOUT --wheel WHEEL [PYTEST_ARGUMENT ...]
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from known_differences import REASONS  # noqa: E402
from python_suite import RUNS, Suite, add_arguments  # noqa: E402 - beside this directory, which is no package

_EXTRAS = ".[brotli,cli,http2,socks,zstd]"
# What the tests need of the checkout's requirements, which are also those of its documentation.
_REQUIREMENTS = ("chardet", "cryptography", "pytest", "trio", "trustme", "uvicorn")


def _requirements(checkout: Path) -> list[str]:
    """Returns the requirements of the tests, with the versions that the checkout pins."""
    lines = (checkout / "requirements.txt").read_text().splitlines()
    return [line for line in lines if re.split(r"[=;\[]", line)[0] in _REQUIREMENTS]


def main() -> int:
    """Runs the suite without a gate and with gates, and prints the differences.

    Returns the exit status: 1 if a test ends differently without a known reason, otherwise 0.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_arguments(parser, "github.com/encode/httpx")
    options, arguments = parser.parse_known_args()
    checkout: Path = options.checkout.resolve()
    suite = Suite(checkout, "httpx")
    suite.create_environment()
    suite.install("--editable", _EXTRAS, *_requirements(checkout))
    suite.install_gate(options.wheel.resolve())
    return suite.compare(options.run or list(RUNS), REASONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
