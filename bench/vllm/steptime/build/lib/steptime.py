"""vLLM plugin that makes each engine step take a configured time.

vLLM's server, scheduler, KV cache, preemption and metrics stay as they are. The plugin only
lengthens the forward pass, by sleeping. Two CPU cores thereby get the proportions of a GPU, and
latencies depend little on the machine.

Environment variables:
    STEPTIME_BASE_MS: Time of a step, in milliseconds. The plugin does nothing if this is 0 or unset.
    STEPTIME_SEQ_MS: Time added per running sequence, in milliseconds. Default 0.
    STEPTIME_TOKEN_US: Time added per prompt token, in microseconds. Default 0.
"""

import os
import time


def register() -> None:
    """Wraps `Worker.execute_model`. vLLM calls this function in each of its processes."""
    base = float(os.environ.get("STEPTIME_BASE_MS", "0")) / 1e3
    if base <= 0:
        return
    per_sequence = float(os.environ.get("STEPTIME_SEQ_MS", "0")) / 1e3
    per_token = float(os.environ.get("STEPTIME_TOKEN_US", "0")) / 1e6

    from vllm.v1.worker.gpu_worker import Worker

    if getattr(Worker, "_has_step_time", False):
        return
    Worker._has_step_time = True
    execute_model = Worker.execute_model

    def execute_for_step_time(self, scheduled, *args, **kwargs):
        started = time.perf_counter()
        output = execute_model(self, scheduled, *args, **kwargs)
        tokens = getattr(scheduled, "total_num_scheduled_tokens", 0)
        if tokens:
            sequences = len(scheduled.num_scheduled_tokens)
            step = base + per_sequence * sequences + per_token * max(0, tokens - sequences)
            remaining = step - (time.perf_counter() - started)
            if remaining > 0:
                time.sleep(remaining)
        return output

    Worker.execute_model = execute_for_step_time
