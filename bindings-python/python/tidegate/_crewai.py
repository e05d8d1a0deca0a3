"""Support for the models of CrewAI that contain an SDK client of openai or anthropic.

Classes are recognised by module name, without importing CrewAI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# The attributes of a model that hold its SDK clients.
_CLIENT_ATTRIBUTES = ("_client", "_async_client")


def is_crewai(model: object) -> bool:
    """Returns `True` if the object is a model of one of CrewAI's own providers."""
    return any(cls.__module__.startswith("crewai.llms.providers.") for cls in type(model).__mro__) and all(
        hasattr(model, name) for name in _CLIENT_ATTRIBUTES
    )


def wrap_clients(model: Any, wrapped: Callable[[Any], Any]) -> Any:
    """Returns a copy of a CrewAI model whose SDK clients are wrapped.

    Args:
        model: The model, which is not changed.
        wrapped: Function that returns the wrapped copy of an SDK client.

    Raises:
        TypeError: If the model has no clients yet, because its API key was missing, or if its SDK
            is not supported.

    """
    clients = {name: getattr(model, name) for name in _CLIENT_ATTRIBUTES}
    if None in clients.values():
        raise TypeError("cannot wrap a model of CrewAI that has no SDK clients yet: create it with its API key")
    copied = model.model_copy()
    for name, client in clients.items():
        setattr(copied, name, wrapped(client))
    return copied
