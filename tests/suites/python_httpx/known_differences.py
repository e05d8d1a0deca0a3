"""Known reasons why a test of httpx ends differently with a gate.

`REASONS` has, for each run of the plugin (see `RUNS` in `gate_plugin.py`), the reason for each
pattern of test names.
"""

_NATIVE = {
    r"^tests\.test_main::": "the command line prints what the request extension `trace` reports, which only httpx does",
    r"^tests\.test_timeouts::test_(connect|write|pool)_timeout\[": (
        "the gate's own transport has the time limit of the configuration for connecting, and none for writing; the "
        "cap of the target takes the place of the client's limit of connections"
    ),
}

_KEPT = {
    r"^tests\.test_multipart::test_multipart_rewinds_files$": (
        "httpx declares a wrong content-length for the file, which was not flushed; the gate reports that, as httpx's own "
        "transport does, and the mock does not"
    ),
    r"^tests\.test_timeouts::test_pool_timeout\[": (
        "the gate reads the start of a body ahead; the test's body is so short that its connection is free again"
    ),
}

REASONS = {"observe": _NATIVE, "keep-observe": _KEPT, "enforce": _NATIVE, "keep-enforce": _KEPT}
