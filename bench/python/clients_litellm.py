"""Tested clients of LiteLLM's providers, and of packages that are built on LiteLLM.

Each function returns the tested client of one package. Without a gate, it is the stock client. The
packages need an environment of their own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# LiteLLM looks up prices on the network as it is imported, unless told not to.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["CREWAI_DISABLE_TELEMETRY"] = os.environ["OTEL_SDK_DISABLED"] = "true"

import dspy
import litellm as lite
from crewai import LLM

from client_interface import ASK, CHAT, Closable, Package, TestedClient, flat, in_threads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import tidegate

#: The providers of LiteLLM, each with the path of its base URL.
PROVIDERS = {
    "openai": "/v1",
    "hosted_vllm": "/v1",
    "anthropic": "",
    "mistral": "/v1",
    "together_ai": "/v1",
    "openrouter": "/v1",
    "gemini": "/v1beta",
    "deepseek": "/v1",
    "groq": "/v1",
}
#: The route of the package that is measured with a gate. Stock packages need it closed.
_open: list[Any] = []


def route(gate: tidegate.Gate | None) -> None:
    """Sends LiteLLM's requests through `gate`, or through no gate if it is None."""
    if gate is not None:
        _open[:] = [gate.litellm()]
    elif _open:
        _open.pop().close()


def provider(name: str, *, blocking: bool) -> Callable[[str, str, tidegate.Gate | None], TestedClient]:
    """Returns the function that makes the tested client of one of LiteLLM's providers."""

    def make(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
        route(gate)
        call = {"model": f"{name}/small", "api_base": url + PROVIDERS[name], "api_key": key, "messages": CHAT}
        if blocking:
            return in_threads(lambda: lite.completion(**call), lambda: Closable(lite.completion(**call, stream=True)))
        return TestedClient(lambda: lite.acompletion(**call), flat(lambda: lite.acompletion(**call, stream=True)))

    make.__name__ = f"litellm_{name}{'_sync' if blocking else ''}"
    return make


def litellm_router(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client of LiteLLM's `Router` with one deployment. With a gate, it does not retry."""
    route(gate)
    deployment = {"model": "hosted_vllm/small", "api_base": f"{url}/v1", "api_key": key}
    retries = {} if gate is None else {"num_retries": 0}
    router = lite.Router([{"model_name": "small", "litellm_params": deployment}], **retries)
    call: dict[str, Any] = {"model": "small", "messages": CHAT}
    return TestedClient(lambda: router.acompletion(**call), flat(lambda: router.acompletion(**call, stream=True)))


def dspy_lm(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns an asynchronous client of DSPy with LiteLLM. With a gate, DSPy does not retry."""
    model, program = _dspy(url, key, gate)
    return TestedClient(lambda: model.acall(ASK), lambda: dspy.streamify(program)(question=ASK))


def dspy_lm_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a synchronous client of DSPy with LiteLLM. With a gate, DSPy does not retry."""
    model, program = _dspy(url, key, gate)
    stream = dspy.streamify(program, async_streaming=False)
    return in_threads(lambda: model(ASK), lambda: Closable(stream(question=ASK)))


def _dspy(url: str, key: str, gate: tidegate.Gate | None) -> tuple[Any, Any]:
    """Returns a model, and a program that uses it."""
    route(gate)
    retries = {} if gate is None else {"num_retries": 0}
    model = dspy.LM("openai/small", engine="litellm", api_base=f"{url}/v1", api_key=key, cache=False, **retries)
    program = dspy.Predict("question -> answer")
    program.set_lm(model)
    return model, program


def crewai_litellm(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client of CrewAI with LiteLLM."""
    route(gate)
    return _crewai(
        [LLM("openai/small", True, base_url=f"{url}/v1", api_key=key, stream=flag) for flag in (False, True)]
    )


def crewai_openai(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client of CrewAI's own OpenAI provider. With a gate, the model is wrapped."""
    models = [LLM("openai/gpt-4o-mini", base_url=f"{url}/v1", api_key=key, stream=flag) for flag in (False, True)]
    return _crewai([gate.wrap(model) for model in models] if gate else models)


def _crewai(models: list[Any]) -> TestedClient:
    """Returns the client of two models, of which the second streams.

    CrewAI returns the text of a stream as a whole, and its chunks as events of another thread.
    """
    whole, streaming = models

    async def stream() -> AsyncIterator[object]:
        yield "started"
        yield await streaming.acall(ASK)

    return TestedClient(lambda: whole.acall(ASK), stream)


PACKAGES = [
    *(Package("litellm", provider(name, blocking=False), name) for name in PROVIDERS),
    *(Package("litellm", provider(name, blocking=True), f"{name}, sync") for name in PROVIDERS),
    Package("litellm", litellm_router, "Router"),
    Package("dspy", dspy_lm),
    Package("dspy", dspy_lm_sync, "sync"),
    # CrewAI repeats a 429 twice, and this cannot be switched off.
    Package("crewai", crewai_litellm, "LiteLLM", loops=True),
    Package("crewai", crewai_openai, "OpenAI", loops=True),
]
