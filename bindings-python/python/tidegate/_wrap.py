"""Copies of SDK clients whose HTTP requests go through a gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tidegate._langchain import is_langchain, wrap_clients
from tidegate._transport import check_transport_name, family_of, wrap_client

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._transport import TransportName

Client = TypeVar("Client")

_SUPPORTED_CLIENTS = (
    "gate.wrap supports the clients of openai and anthropic, and LangChain's ChatOpenAI. To any other library that "
    "accepts an httpx client, pass gate.httpx_client() or gate.httpx_async_client()"
)


def wrap(gate: _native.Gate, client: Client, transport: TransportName) -> Client:
    """Returns a copy of an SDK client whose requests go through the gate. See `Gate.wrap`.

    The copy is made by the SDK's own `with_options`, so subclasses (Azure, Bedrock) keep their
    settings. In mode `off` the copy has the original transport, unless a target is a pool: only the
    gate can resolve the address of a pool.
    """
    if is_langchain(client):
        model: Client = wrap_clients(client, lambda held: wrap(gate, held, transport))
        return model
    sdk: Any = client
    http = getattr(sdk, "_client", None)
    family = family_of(http)
    if family is None or not hasattr(sdk, "with_options"):
        raise TypeError(f"cannot wrap {type(client).__module__}.{type(client).__name__}: {_SUPPORTED_CLIENTS}")
    choice = check_transport_name(transport)
    if gate.can_bypass:
        untouched: Client = sdk.with_options()
        return untouched
    http_client = wrap_client(gate, family, http, choice=choice)
    # Only one layer may retry: attempts of nested retry loops multiply.
    retries = {"max_retries": 0} if gate.mode == "enforce" else {}
    wrapped: Client = sdk.with_options(http_client=http_client, **retries)
    return wrapped
