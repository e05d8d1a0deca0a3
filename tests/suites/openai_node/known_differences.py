"""Known reasons why a test of openai-node ends differently with a gate.

`REASONS` has, for each run of the set-up file (a mode of the gate, with or without the client's own
fetch), the reason for each pattern of test names.
"""

REASONS: dict[str, dict[str, str]] = {"observe": {}, "keep-observe": {}, "enforce": {}, "keep-enforce": {}}
