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

_ENFORCED = {
    r"::test_(retries_taken|retries_taken_new_response_class|omit_retry_count_header|overwrite_retry_count_header)\[": _RETRIES,
    r"::test_(api_key_refresh_on_retry|bearer_token_refresh_async|client_token_provider_refresh_(a?sync))$": _RETRIES,
    r"::test_(retrying_timeout_errors_doesnt_leak|respx2_maps_timeout_to_native_family)$": _RAISED,
}

_KEPT = {
    r"::test_a?sync_x509_does_not_mutate_or_independently_close_caller_transport$": (
        "it asks whether the client's transport is the very object it was given; here the gate stands above that"
    ),
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

_BROKEN = "the mock's exception arrives as a broken connection: RemoteProtocolError instead of ReadError"
_BRIDGED = {
    r"^tests\.lib\.tools\.test_runner_eager_tools::test_does_not_wait_for_the_reply_to_end\[": (
        "it asks how far the mock has sent when a tool starts; a real connection is ahead of its reader"
    ),
    r"^tests\.lib\.tools\.test_runner_eager_tools::test_runs_no_call_once_reading_the_reply_has_failed\[": _BROKEN,
    r"^tests\.lib\.threads\.\w+\.\w+::test_a_stream_whose_events_fail_or_run_out_early_\w+\[events_fail\]$": _BROKEN,
    r"^tests\.lib\.threads\.\w+\.\w+::test_streaming_runner_whose_stream_fails_leaves_the_thread_free$": _BROKEN,
    r"^tests\.test_open_telemetry\.\w+::test_(async_)?raw_response_whose_connection_is_lost_in_the_body$": _BROKEN,
    r"^tests\.test_open_telemetry\.\w+::test_batch_results_download_failure_fails_the_span$": _BROKEN,
    r"^tests\.test_open_telemetry\.\w+::test_stream_helper_read_error_has_the_partial_output$": _BROKEN,
    r"^tests\.test_open_telemetry\.\w+::test_false_keeps_a_span_that_the_sampler_dropped_current_": (
        "the mock asks for the current span of its thread, which is here the thread of the bridge's server"
    ),
}

_ENFORCED_OF_ANTHROPIC = {
    r"::test_(retries_taken|omit_retry_count_header|overwrite_retry_count_header)\[": _RETRIES,
    r"::test_(every_attempt_has_the_qualifiers|retrying_timeout_errors_doesnt_leak)$": _RETRIES,
    r"^tests\.test_middleware\.\w+::test_(\w*fallback\w*|middleware_runs_per_attempt|request_modifications_\w+)$": (
        "the SDK's middleware runs once a call, because the gate retries below it"
    ),
    r"^tests\.test_middleware\.\w+::test_streaming_(flows_through|error_response_is_visible_to)_middleware$": (
        "the mock's stream of events is empty, which the gate retries and then reports as incomplete"
    ),
}

_ANTHROPIC: dict[str, dict[str, str]] = {
    "observe": _BRIDGED,
    "keep-observe": {},
    "enforce": _BRIDGED | _ENFORCED_OF_ANTHROPIC,
    "keep-enforce": _ENFORCED_OF_ANTHROPIC,
}

REASONS = {"openai": _OPENAI, "anthropic": _ANTHROPIC}
