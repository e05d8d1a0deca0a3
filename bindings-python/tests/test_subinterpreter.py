"""Tests that importing the package fails in a subinterpreter, and that this failure is harmless."""

from __future__ import annotations

import subprocess
import sys

import pytest

from upstream import WAIT, Upstream

HEAD = """
import sys

def use():
    import tidegate
    with tidegate.Gate().httpx_client() as http:
        assert http.get(sys.argv[1]).status_code == 200

def refuse(*, legacy):
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters
        made = interpreters.create("legacy" if legacy else "isolated")
    else:
        import _xxsubinterpreters as interpreters
        made = interpreters.create(isolated=not legacy)
    interpreters.run_string(made, '''
try:
    import tidegate
    print("imported", flush=True)
except ImportError as error:
    print(error, flush=True)
''')
    interpreters.destroy(made)

"""

ORDERS = {
    "after the main interpreter": "use(); refuse(legacy=True); refuse(legacy=False); use()",
    "before the main interpreter": "refuse(legacy=True); refuse(legacy=False); use()",
}


@pytest.mark.parametrize("order", ORDERS)
def test_subinterpreters_are_rejected_without_effect_on_the_main_one(order: str, upstream: Upstream) -> None:
    script = [sys.executable, "-X", "faulthandler", "-c", HEAD + ORDERS[order], upstream.url]
    done = subprocess.run(script, capture_output=True, text=True, timeout=2 * WAIT, check=False)
    assert done.returncode == 0, done.stderr
    legacy, isolated = done.stdout.splitlines()
    assert "cannot be imported in a subinterpreter" in legacy
    assert "single-interpreter = true" in legacy
    # Python 3.12 and later rejects isolated subinterpreters with its own message.
    assert "subinterpreter" in isolated
