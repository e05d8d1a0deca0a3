"""Known reasons why a test of an SDK ends differently with a gate.

`REASONS` has, for each SDK and each run of the plugin (see `RUNS` in `gate_plugin.py`), the reason
for each pattern of test names.
"""

_RETRIES = (
    "the gate retries in the SDK's place, so that the SDK counts none; it sends what it was given again, and asks no "
    "provider of keys for another"
)
_RAISED = (
    "an SDK that retries by itself and was not wrapped gets every failure as a response that says not to retry: 502 or "
    "504 instead of its timeout error"
)

_IDENTITY = (
    "it asks for the very object that the client was given or that the mock returned; here the gate is in between, and "
    "each attempt has a request and a response of its own"
)
_IN_MEMORY = (
    "the mock's body is in memory, and can be read after the response was closed; through the gate that is a ReadError"
)
_AHEAD = "it asks how far the mock has sent; an exchange with a server is ahead of its reader"

_LONG_WAIT = "the gate waits as long as Retry-After says, also longer than the SDK's maximum of 120 s"

_ENFORCED = {
    r"::test_(retries_taken|retries_taken_new_response_class|omit_retry_count_header|overwrite_retry_count_header)\[": _RETRIES,
    r"::test_(api_key_refresh_on_retry|bearer_token_refresh_async|client_token_provider_refresh_(a?sync))$": _RETRIES,
    r"::test_(does_not_retry_retry_after_above_max$|retry_after_numeric_overflow\[)": _LONG_WAIT,
    r"::test_a?sync_x509_token_exchange_honors_server_retry_refusals\[": _LONG_WAIT,
    r"::test_(retrying_timeout_errors_doesnt_leak|respx2_maps_timeout_to_native_family)$": _RAISED,
}

_KEPT = {
    r"::test_a?sync_x509_(does_not_mutate_or_independently_close_caller|preserves_mounted)_transport": _IDENTITY,
    r"^tests\.test_streaming::test_(request_errors_are_wrapped|async_stream_aclosing)\[": _IDENTITY,
    r"::test_(unmapped_transport_errors|multipart_retry_rewinds_seekable_file)\[": _IDENTITY,
    r"^tests\.lib\.test_vertex_provider::": _IDENTITY,
    r"^tests\.lib\.streaming\.agents\.test_creation_tools::test_close_before_resuming_does_not_dispatch\[": _IN_MEMORY,
    r"^tests\.lib\.streaming\.agents\.test_(results|streams)::test_.*\[async": _AHEAD,
    r"^tests\.test_stream_mode::test_domain_error_delivery_mode\[async": _AHEAD,
    r"::test_a?sync_x509_rewinds_seekable_multipart_upload_to_its_original_position$": (
        "it asks where the file stands when the transport is called: a body of moderate length has been read into memory by "
        "then. What is sent is the same"
    ),
    r"::test_sync_x509_rewinds_seekable_request_stream_to_its_original_position$": (
        "httpx declares the length of the whole file, and the body begins in its middle; the gate reports that, as httpx's "
        "own transport does, and the mock does not"
    ),
}

_OPENAI = {"observe": {}, "keep-observe": _KEPT, "enforce": _ENFORCED, "keep-enforce": _KEPT | _ENFORCED}

_READ_AHEAD = {
    r"^tests\.lib\.tools\.test_runner_eager_tools::test_(does_not_wait_for_the_reply_to_end|runs_no_call_once)": _AHEAD,
}
_BRIDGED = _READ_AHEAD | {
    r"::test_stream_closed_from_another_thread_while_it_is_read\[traced\]$": (
        "it closes the stream when the mock has sent an event, which the reader then may not have read yet"
    ),
}
_KEPT_OF_ANTHROPIC = _READ_AHEAD | {
    r"::test_(async_)?stream_over_a_body_that_was_read_before_the_call_returned\[": (
        "the mock's body is in memory, so that its response is closed from the start; through the gate it is when it has "
        "been read"
    ),
    r"::test_(async_)?events_read_after_the_response_was_closed_leave_the_span_alone$": _IN_MEMORY,
    r"^tests\.lib\.test_platform_resources::test_beta_messages_raw_response\[": _IDENTITY,
}

_INCOMPLETE = (
    "the mock's stream ends before its last event, or fails before its first one; the gate retries the latter, and "
    "reports both as errors"
)
_ENFORCED_OF_ANTHROPIC = {
    r"::test_(retries_taken|omit_retry_count_header|overwrite_retry_count_header)\[": _RETRIES,
    r"::test_(every_attempt_has_the_qualifiers|retrying_timeout_errors_doesnt_leak)$": _RETRIES,
    r"^tests\.test_middleware\.\w+::test_(\w*fallback\w*|middleware_runs_per_attempt|request_modifications_\w+)$": (
        "the SDK's middleware runs once a call, because the gate retries below it"
    ),
    r"^tests\.test_middleware\.\w+::test_streaming_(flows_through|error_response_is_visible_to)_middleware$": _INCOMPLETE,
    r"^tests\.lib\.test_refusal_fallback(_streaming)?\.\w*RateLimitedFastHop::": _RETRIES,
    r"^tests\.lib\.test_refusal_fallback_streaming\.\w+::test_a_fallback_request_that_raises_replays_the_refusal$": _RAISED,
    r"^tests\.lib\.test_refusal_fallback_streaming\.Test(EdgeCases|FallbackChain)::test_a": _RETRIES,
    r"^tests\.lib\.threads\.\w+\.\w+::test_unrelated_errors_raise_and_the_same_call_again_sends_the_turn_once\[": _RETRIES,
    r"^tests\.lib\.threads\.\w+\.\w+::test_a_(stream_that_ends|stream_whose_events|turn_that_no_reply)": _INCOMPLETE,
    r"^tests\.lib\.threads\.\w+\.\w+::test_runner_compacts_a_thread_that_ends_in_a_partial_reply_": _INCOMPLETE,
    r"^tests\.test_prepare\.TestClient::test_generator_body_survives_retries\[": (
        "the gate repeats a POST after a 500 only if its path is one of a known API, and `/foo` is none"
    ),
    r"^tests\.test_open_telemetry\.TestHttpAttributes::test_a_\w*(retried|retries)": _RETRIES,
    r"^tests\.test_open_telemetry\.\w+::test_(time_to_first_chunk_counts|false_sends_no_trace|the_call_raises_the_error)": _RETRIES,
    r"^tests\.test_open_telemetry\.TestCallSpans::test_(connection_error|timeout)$": _RAISED,
    r"^tests\.test_open_telemetry\.\w+::test_(async_)?(stream_(ended|parsed|whose_bytes|helper|read_without))": _INCOMPLETE,
    r"^tests\.test_open_telemetry\.\w+::test_(async_)?(raw_response_whose_events|partial_output)": _INCOMPLETE,
}

_ANTHROPIC: dict[str, dict[str, str]] = {
    "observe": _BRIDGED,
    "keep-observe": _KEPT_OF_ANTHROPIC,
    "enforce": _BRIDGED | _ENFORCED_OF_ANTHROPIC,
    "keep-enforce": _KEPT_OF_ANTHROPIC | _ENFORCED_OF_ANTHROPIC,
}

REASONS = {"openai": _OPENAI, "anthropic": _ANTHROPIC}
