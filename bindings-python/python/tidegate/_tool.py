"""`gate.tool(name)`: a slot of a named resource that is no model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate._hold import Hold

if TYPE_CHECKING:
    from asyncio import Future

    from tidegate._errors import Error
    from tidegate._native import Context, Permit, Port


class Tool(Hold["Tool"]):
    """A tool's slot to hold, by `with`, `async with` or as a decorator. Made by `Gate.tool`."""

    _says = "tool"

    def _acquire(self, port: Port, context: Context | None) -> tuple[Future[Permit | Error], int]:
        return self._gate.acquire(port, self._name, context)

    def _acquire_blocking(self, context: Context | None) -> Permit | Error:
        return self._gate.acquire_blocking(self._name, context)

    def _inside(self, permit: Permit, asked: Context | None) -> Context | None:  # noqa: ARG002
        # The native one knows what is held, so that a cycle is refused.
        return permit.context

    def _entered(self, permit: Permit) -> Tool:  # noqa: ARG002
        return self

    def _release(self, permit: Permit, error: BaseException | None) -> None:  # noqa: ARG002
        permit.close()
