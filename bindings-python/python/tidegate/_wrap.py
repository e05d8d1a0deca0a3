"""`gate.wrap(client)`: the client a user has, with its HTTP going through the gate."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from tidegate import _native
from tidegate._transport import family_of

Client = TypeVar("Client")


def wrap(gate: _native.Gate, client: Client) -> Client:
    """Return a copy of the SDK client whose http client has our transport."""
    sdk: Any = client
    http = sdk._client
    family = family_of(http)
    if family is None:
        raise TypeError(f"cannot wrap {type(client).__name__}")
    ours = copy.copy(http)
    asynchronous = isinstance(http, family.module.AsyncClient)
    make = family.async_transport if asynchronous else family.transport
    ours._transport = make(gate, under_sdk=False)
    ours._mounts = {}
    wrapped: Client = sdk.with_options(http_client=ours, max_retries=0)
    return wrapped
