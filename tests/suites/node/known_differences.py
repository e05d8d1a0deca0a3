"""Known reasons why a test ends differently with a gate.

`REASONS` has, for each project and each run, the reason for each pattern of test names.
"""

from __future__ import annotations

_MOCKS = "the set-up loads the client before the test replaces a module of it (vi.mock, jest.mock)"
_TURNS = (
    "an answer takes some turns of the event loop more; the test aborts right after the mock's answer, or allows 10 ms"
)
_REALM = (
    "an abort rejects at once with the signal's reason, and not with the error of the mock; in jest, that reason is no "
    "instance of the tests' `Error`"
)
_RETRIES = (
    "the gate retries in the SDK's place: the SDK counts none, and does not sign or authorize the request anew. A "
    "wrapped client behaves the same"
)
_RAISED = (
    "an SDK that retries by itself and was not wrapped gets every failure as a response that says not to retry, "
    "instead of the error of its fetch"
)
_ONCE = (
    "the mock answers one attempt of a call that fails, and lets the others wait. The gate makes four, because it does "
    "not know the `maxRetries: 0` of a client that was not wrapped"
)
_FIRST_EVENT = (
    "the gate returns the response of a stream with its first event, because it retries streams that fail before that; "
    "the test sends the event after it has the response"
)
_LOWER = "the gate's transport sends header names in lower case"
_TIMING = "the gate's transport adds no resource timing to `performance`"
_PROXY = "the gate's transport hands up a 407, which Node's fetch rejects"

_OPENAI_KEPT = {
    r"^tests/generated-resource-helpers\.test\.ts::": _MOCKS,
    r"^tests/client-behavior\.test\.ts::.* honors HTTP-date retry-after headers$": _MOCKS,
    r"^tests/lib/ChatCompletionRunFunctions\.test\.ts::.* flow with abort$": _TURNS,
    r"^tests/lib/bedrock-runtime-provider\.test\.ts::.* re-signs Runtime timeout retries$": _TURNS,
    r"^tests/lib/azure\.test\.ts::retries retry on timeout$": _TURNS,
}
_OPENAI_RETRIED = {
    r"^tests/lib/(azure|bedrock|bedrock-provider|bedrock-runtime-provider|provider)\.test\.ts::"
    r".*(refresh|before a retry|on every request attempt|retry on timeout)": _RETRIES,
    r"^tests/client-behavior\.test\.ts::.* preserves the appropriate error class when fetching fails": _RAISED,
    r"^tests/lib/ChatCompletionRunFunctions\.test\.ts::.* handles network errors": _RAISED,
}
_ANTHROPIC_KEPT = {
    r"^tests/api-resources/(Beta)?MessageStream\.test\.ts::.* (parses tool input lazily|still emits per-delta)": _MOCKS,
    r"^tests/middleware\.test\.ts::.* timeout applies to the underlying fetch": _REALM,
    r"^tests/middleware\.test\.ts::.* timeout does not cover backend middleware": _TURNS,
    r"^tests/index\.test\.ts::retries retry on timeout$": _TURNS,
}
_ANTHROPIC_RETRIED = {
    r"MessageStream\.test\.ts::.* (handles network errors|does not throw unhandled rejection)": _RAISED,
    r"^tests/middleware\.test\.ts::.*(fetch error|connection errors|underlying fetch keep|thrown by fetch)": _RAISED,
    r"^tests/middleware\.test\.ts::.*(re-runs on every next|wraps each retry)": _RETRIES,
    r"^tests/index\.test\.ts::retries retry count header$": _RETRIES,
    r"^tests/lib/tools/BetaToolRunner\.test\.ts::.* handles api errors$": _ONCE,
    r"^tests/middleware\.test\.ts::.* stream parses are lazy": _FIRST_EVENT,
}
_UNDICI = {
    r"::Headers retain keys case-sensitive$|/headers-case\.js$": _LOWER,
    r"::(should create a PerformanceResourceTiming|should include encodedBodySize)|/resource-timing\.js$": _TIMING,
    r"::(redirect )?timing entries should be ": _TIMING,
    r"::Receiving a 407 status code": _PROXY,
}
_UNDICI_KEPT = {
    r"::parallel fetch with the same AbortController|/resource-timing\.js$": _TURNS,
    r"::(redirect )?timing entries should be |::should include encodedBodySize": _TURNS,
}

REASONS: dict[str, dict[str, dict[str, str]]] = {
    "openai": {"keep-observe": _OPENAI_KEPT, "keep-enforce": _OPENAI_KEPT | _OPENAI_RETRIED},
    "anthropic": {"keep-observe": _ANTHROPIC_KEPT, "keep-enforce": _ANTHROPIC_KEPT | _ANTHROPIC_RETRIED},
    "undici": {"observe": _UNDICI, "keep-observe": _UNDICI_KEPT, "enforce": _UNDICI, "keep-enforce": _UNDICI_KEPT},
}
