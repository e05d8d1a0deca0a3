"""Objects of frameworks that hold SDK clients. Known by their classes' modules: no framework is imported for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# The SDK's clients in a chat model of LangChain's for OpenAI, each with the attribute that holds what of it is called.
_CLIENT_ATTRIBUTES = {"root_client": "client", "root_async_client": "async_client"}


def is_langchain(model: object) -> bool:
    """Whether this is `ChatOpenAI`, or one of its kin (Azure's, and those for what speaks like OpenAI)."""
    return any(cls.__module__.startswith("langchain_openai.") for cls in type(model).__mro__) and all(
        hasattr(model, name) for name in _CLIENT_ATTRIBUTES
    )


def wrap_clients(model: Any, wrapped: Callable[[Any], Any]) -> Any:
    """Copy a chat model, with its SDK clients wrapped.

    It may have no synchronous one, where its key comes from a coroutine. One that was handed in without the SDK client
    above it cannot be reached.
    """
    held = {root: getattr(model, root) for root in _CLIENT_ATTRIBUTES}
    if any(held[root] is None and getattr(model, called) is not None for root, called in _CLIENT_ATTRIBUTES.items()):
        raise TypeError("cannot wrap a chat model that was given client= or async_client=: wrap what those belong to")
    changed: dict[str, Any] = {}
    for root, client in held.items():
        if client is not None:
            changed[root] = wrapped(client)
            changed[_CLIENT_ATTRIBUTES[root]] = changed[root].chat.completions
    return model.model_copy(update=changed)
