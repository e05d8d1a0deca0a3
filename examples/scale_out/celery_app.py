"""Celery: workers on all machines share the cap over the Redis server that is their broker.

celery -A celery_app worker --concurrency 4
"""

import os

import openai
from celery import Celery

import tidegate

REDIS = os.environ["REDIS_URL"]
app = Celery("celery_app", broker=REDIS, backend=REDIS)
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_connection_retry_on_startup = True

gate = tidegate.Gate(targets={"gpt": {"models": "gpt-*", "cap": 4}}, share=REDIS)


@app.task
def ask(question: str) -> str:
    """Asks the model."""
    with gate.wrap(openai.OpenAI()) as client:
        answer = client.chat.completions.create(
            model="gpt-4o-mini",
            messages=[{"role": "user", "content": question}],
            extra_headers={"x-process": str(os.getpid())},
        )
    return answer.choices[0].message.content or ""
