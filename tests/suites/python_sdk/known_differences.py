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

_EARLY = "the gate reads the first event before it returns a stream, because it retries streams that fail before that"
_INCOMPLETE = (
    "the mock's stream ends before its last event, or fails before its first one; the gate retries the latter, and "
    "reports both as errors"
)
_UNKNOWN_PATH = (
    "the gate repeats a POST after a failure only if its path is one of an inference API, and tells the caller not to "
    "repeat it either; this path is none"
)
_NO_RETRIES = (
    "the SDK sets `max_retries=0`, for the client or for calls that may have effects; the gate retries nevertheless, "
    "because no request of an SDK that was not wrapped says so"
)
_OUTAGE = (
    "a target that has answered before, and now refuses connections or answers 503, is down: the gate holds its calls "
    "until it answers, at most until their deadline of 600 s"
)

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
}

# Tests whose clients were given a transport: in the run `enforce`, these have no gate.
_KEPT_ENFORCED = {
    r"::test_retry_limits_and_backoff\[": _RETRIES,
    r"::test_\w*(refresh|resigns?)\w*(retry|retries|before|copy|async|sync|credentials|routes)": _RETRIES,
    r"^tests\.lib\.test_bedrock_auth_conformance::test_(retry_signing|body_replay)_fixture": _RETRIES,
    r"::test_failure_and_retry_metadata\[.*-status\]$": _RETRIES,
    r"::test_a?sync_x509_\w*honors_\w*(delay|without_blocking)$": _RETRIES,
    r"::test_sync_x509_retries_transient_exchange_and_honors_retry_after\[(429|503)\]": _RETRIES,
    r"::test_x509_(connection|exchange)_retries_are_bounded": _RETRIES,
    r"::test_sync_x509_retries_transient_exchange_and_honors_retry_after\[": _UNKNOWN_PATH,
    r"::test_a?sync_x509_honors_explicit_server_retry_requests\[": _UNKNOWN_PATH,
    r"^tests\.lib\.test_runner_idempotency::test_runner_rotates_keys_between_turns_not_retries\[decisions": _UNKNOWN_PATH,
    r"^tests\.lib\.test_runner_server_tools::test_(lost_mcp_response_cannot_resume|nonledger_mcp_requests)": _NO_RETRIES,
    r"^tests\.lib\.test_runner_typed_tools::test_failed_request_has_one_content_free_diagnostic\[": _NO_RETRIES,
    r"^tests\.lib\.test_responses_tool_runner::test_ledger_admission_failure_prevents_http_and_retry_": _NO_RETRIES,
    r"^tests\.lib\.test_realtime_calls::test_public_(async_)?create_uses_generated_wire_contract\[": _UNKNOWN_PATH,
    r"::test_binary_content_retry_re(uses_known_repeatable_iterable|winds_seekable_stream)": _UNKNOWN_PATH,
    r"::test_a?sync_x509_uses_unexpired_token_\w*_transient_status\[4": _UNKNOWN_PATH,
    r"::test_a?sync_x509_(uses_unexpired_token|shares_failed_proactive_refresh)": _OUTAGE,
    r"::test_binary_content_retry_does_not_reuse_one_shot": _RAISED,
    r"::test_application_exceptions_are_not_retried\[error1": _RAISED,
    r"::test_failure_and_retry_metadata\[.*-(connection|timeout)\]$": _RAISED,
    r"^tests\.test_httpx2::test_\w*(failure_families|preserve_httpx2_family)\[": _RAISED,
    r"^tests\.test_stream_mode::test_events_preserve_failures\[": _RAISED,
    r"^tests\.test_tls_hostname::test_a?sync_tls_verifies_configured_hostname\[": _RAISED,
    r"::test_ambiguous_post_delivery_preserves_idempotency\[": _RAISED,
    r"^tests\.lib\.streaming\.agents\.test_streams::test_input_failure_closes_stream\[": _EARLY,
    r"^tests\.lib\.test_bedrock::test_allows_sse_and_response_wrappers$": _INCOMPLETE,
}

_OPENAI = {
    "observe": {},
    "keep-observe": _KEPT,
    "enforce": _ENFORCED,
    "keep-enforce": _KEPT | _ENFORCED | _KEPT_ENFORCED,
}

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
    r"^tests\.test_prepare\.TestClient::test_generator_body_survives_retries\[": _UNKNOWN_PATH,
    r"^tests\.test_open_telemetry\.TestHttpAttributes::test_a_\w*(retried|retries)": _RETRIES,
    r"^tests\.test_open_telemetry\.\w+::test_(time_to_first_chunk_counts|false_sends_no_trace|the_call_raises_the_error)": _RETRIES,
    r"^tests\.test_open_telemetry\.TestCallSpans::test_(connection_error|timeout)$": _RAISED,
    r"^tests\.test_open_telemetry\.\w+::test_(async_)?(stream_(ended|parsed|whose_bytes|helper|read_without))": _INCOMPLETE,
    r"^tests\.test_open_telemetry\.\w+::test_(async_)?(raw_response_whose_events|partial_output)": _INCOMPLETE,
}

_KEPT_ENFORCED_OF_ANTHROPIC = {
    r"^tests\.lib\.test_client_copy::test_streams_without_a_stream_class\[": _INCOMPLETE,
    r"^tests\.lib\.tools\.test_runners::test_failed_compaction_request_is_not_retried": _NO_RETRIES,
    r"^tests\.test_client\.\w+::test_aiohttp_refused_connection_is_not_a_timeout$": _RAISED,
}

_ANTHROPIC: dict[str, dict[str, str]] = {
    "observe": _BRIDGED,
    "keep-observe": _KEPT_OF_ANTHROPIC,
    "enforce": _BRIDGED | _ENFORCED_OF_ANTHROPIC,
    "keep-enforce": _KEPT_OF_ANTHROPIC | _ENFORCED_OF_ANTHROPIC | _KEPT_ENFORCED_OF_ANTHROPIC,
}

REASONS = {"openai": _OPENAI, "anthropic": _ANTHROPIC}
