"""Known reasons why a test of openai-node ends differently with a gate.

For each run of the set-up file, reasons are listed by a pattern of the tests' names.
"""

REASONS: dict[str, dict[str, str]] = {"observe": {}, "keep-observe": {}, "enforce": {}, "keep-enforce": {}}
