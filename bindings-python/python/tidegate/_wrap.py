"""`gate.wrap(client)`: the client a user has, with its HTTP going through the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tidegate._langchain import is_langchain, wrap_clients
from tidegate._transport import check_transport_name, family_of, wrap_client

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._transport import TransportName

Client = TypeVar("Client")

_SUPPORTED_CLIENTS = (
    "gate.wrap takes the clients of openai and anthropic, and LangChain's ChatOpenAI; whatever else takes an http "
    "client, takes gate.httpx_client() or gate.httpx_async_client()"
)


def wrap(gate: _native.Gate, client: Client, transport: TransportName) -> Client:
    """Return a copy of the SDK's client whose http client has our transport; in mode `off` its own.

    Where a target is a pool it is ours in every mode, since only that knows where the pool is.

    `with_options` is the SDKs' own way to copy a client: subclasses (Azure, Bedrock) carry what is theirs.
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
    if gate.aside:
        untouched: Client = sdk.with_options()
        return untouched
    ours = wrap_client(gate, family, http, choice=choice)
    # Who retries must be one: two loops, one above the other, multiply.
    retries = {"max_retries": 0} if gate.mode == "enforce" else {}
    wrapped: Client = sdk.with_options(http_client=ours, **retries)
    return wrapped
