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
    """Returns `True` if the object is a chat model of `langchain_openai`, such as `ChatOpenAI`."""
    return any(cls.__module__.startswith("langchain_openai.") for cls in type(model).__mro__) and all(
        hasattr(model, name) for name in _CLIENT_ATTRIBUTES
    )


def wrap_clients(model: Any, wrapped: Callable[[Any], Any]) -> Any:
    """Returns a copy of a LangChain chat model whose SDK clients are wrapped.

    A model whose key comes from a coroutine has no synchronous client; only its asynchronous client
    is then wrapped.

    Args:
        model: The chat model, which is not changed.
        wrapped: Function that returns the wrapped copy of an SDK client.

    Raises:
        TypeError: If the model was created with `client=` or `async_client=`, because the SDK
            client behind that argument cannot be reached.

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
