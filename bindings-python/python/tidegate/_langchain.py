"""Support for LangChain's OpenAI chat models.

Classes are recognised by module name, without importing LangChain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Attributes of a chat model that hold SDK clients, each with the attribute that holds the part of
# the client that the model calls.
_CLIENT_ATTRIBUTES = {"root_client": "client", "root_async_client": "async_client"}


def is_langchain(model: object) -> bool:
    """Returns `True` if the object is a `ChatOpenAI`, or another chat model of `langchain_openai`."""
    return any(cls.__module__.startswith("langchain_openai.") for cls in type(model).__mro__) and all(
        hasattr(model, name) for name in _CLIENT_ATTRIBUTES
    )


def wrap_clients(model: Any, wrapped: Callable[[Any], Any]) -> Any:
    """Returns a copy of a chat model whose SDK clients are wrapped.

    The model has no synchronous client if its key comes from a coroutine.

    Args:
        model: The chat model.
        wrapped: Returns the wrapped copy of an SDK client.

    Raises:
        TypeError: If the model was created from a part of an SDK client, whose client cannot be
            reached.

    """
    held = {root: getattr(model, root) for root in _CLIENT_ATTRIBUTES}
    if any(held[root] is None and getattr(model, called) is not None for root, called in _CLIENT_ATTRIBUTES.items()):
        raise TypeError(
            "cannot wrap a chat model that was created with client= or async_client=: wrap the SDK client that they "
            "belong to"
        )
    changed: dict[str, Any] = {}
    for root, client in held.items():
        if client is not None:
            changed[root] = wrapped(client)
            changed[_CLIENT_ATTRIBUTES[root]] = changed[root].chat.completions
    return model.model_copy(update=changed)
