"""Copies of SDK clients whose HTTP requests go through a gate."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate import _crewai, _langchain
from tidegate._transport import SdkRetries, check_transport_name, family_of, wrap_client

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._transport import TransportName

Client = TypeVar("Client")

# The maximum number of retries. The retry budget and the deadline end the call before.
_MOST_RETRIES = 1_000_000

# The models of frameworks that contain SDK clients: how they are recognised and wrapped.
_MODELS = (
    (_langchain.is_langchain, _langchain.wrap_clients),
    (_crewai.is_crewai, _crewai.wrap_clients),
)

_SUPPORTED_CLIENTS = (
    "gate.wrap supports the clients of openai, anthropic, groq and together, LangChain's ChatOpenAI, and CrewAI's LLM "
    "of openai and anthropic. For LiteLLM, call gate.litellm(). To any other library that accepts an httpx client, "
    "pass gate.httpx_client() or gate.httpx_async_client(). For requests, aiohttp and boto3, use "
    "gate.requests_adapter, gate.aiohttp_session and gate.attach_botocore"
)


def wrap(gate: _native.Gate, client: Client, transport: TransportName) -> Client:
    """Returns a copy of an SDK client whose requests go through the gate. See `Gate.wrap`.

    The copy is made by the SDK's own `with_options`, so subclasses (Azure, Bedrock) keep their
    settings. In mode `off` the copy has the original transport, unless a target is a pool: only the
    gate can resolve the address of a pool.
    """
    if isinstance(client, type):
        name = client.__name__
        raise TypeError(f"cannot wrap the class {client.__module__}.{name}: pass an instance, such as {name}()")
    for is_model, wrap_clients in _MODELS:
        if is_model(client):
            model: Client = wrap_clients(client, lambda held: wrap(gate, held, transport))
            return model
    sdk: Any = client
    http = getattr(sdk, "_client", None)
    family = family_of(http)
    # A proxy object, such as instructor's, has the attributes of the client that it contains. A copy
    # by `with_options` would lose what the proxy adds.
    if family is None or not hasattr(type(sdk), "with_options"):
        inside = "" if family is None else ". It contains an SDK client: wrap that client, and pass the copy"
        raise TypeError(f"cannot wrap {type(client).__module__}.{type(client).__name__}: {_SUPPORTED_CLIENTS}{inside}")
    choice = check_transport_name(transport)
    if gate.can_bypass:
        untouched: Client = _copy_of(sdk)
        return untouched
    http_client = wrap_client(gate, family, http, choice=choice, sdk=_retries_of(sdk))
    # Only one layer may retry: attempts of nested retry loops multiply.
    retries = {"max_retries": 0} if gate.mode == "enforce" else {}
    wrapped: Client = _copy_of(sdk, http_client=http_client, **retries)
    return wrapped


def _copy_of(sdk: Any, **changes: Any) -> Any:
    """Returns a copy of an SDK client with changed options."""
    copied = sdk.with_options(**changes)
    # The SDKs do not copy this setting.
    if getattr(sdk, "_strict_response_validation", False):
        copied._strict_response_validation = True  # noqa: SLF001
    return copied


def _retries_of(sdk: Any) -> SdkRetries:
    """Returns the retries that the user has set at an SDK client.

    The SDK's default counts as not set.
    """
    packages = (cls.__module__.partition(".")[0] for cls in type(sdk).__mro__)
    defaults = (getattr(sys.modules.get(package), "DEFAULT_MAX_RETRIES", None) for package in packages)
    default = next((default for default in defaults if default is not None), None)
    return SdkRetries(None if sdk.max_retries == default else _max_attempts(sdk.max_retries))


def _max_attempts(max_retries: float) -> int:
    """Returns the number of attempts for a number of retries, which some SDKs allow to be infinite."""
    return 1 + int(min(max(max_retries, 0), _MOST_RETRIES))
