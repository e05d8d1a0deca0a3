"""Why a test ends otherwise over the gate, by a pattern of its name, for each run of the set-up file."""

REASONS: dict[str, dict[str, str]] = {"observe": {}, "keep-observe": {}, "enforce": {}, "keep-enforce": {}}
