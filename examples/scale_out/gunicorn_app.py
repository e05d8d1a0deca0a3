"""A web application on gunicorn: four forked workers share the cap by default.

gunicorn --preload --workers 4 --threads 8 gunicorn_app:app
"""

import os
from collections.abc import Callable, Iterable

import openai

import tidegate

# Created before the workers are forked, which makes them share. Without --preload, each worker
# creates a gate of its own, which shares with share="local".
gate = tidegate.Gate(targets={"gpt": {"models": "gpt-*", "cap": 4}})


def app(environ: dict, start_response: Callable[..., object]) -> Iterable[bytes]:
    """Answers each request with the answer of the model."""
    # A client has connections, so each worker has its own.
    with gate.wrap(openai.OpenAI()) as client:
        answer = client.chat.completions.create(
            model="gpt-4o-mini",
            messages=[{"role": "user", "content": environ["PATH_INFO"]}],
            extra_headers={"x-process": str(os.getpid())},
        )
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [(answer.choices[0].message.content or "").encode()]
