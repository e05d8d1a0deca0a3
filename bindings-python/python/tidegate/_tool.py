"""Slots of tools: named resources with their own caps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate._slot_context import SlotContext
from tidegate._task_id import task_id
from tidegate._warnings import warn_of_held_slot

if TYPE_CHECKING:
    from asyncio import Future

    from tidegate._errors import Error
    from tidegate._native import Context, Gate, Permit, Port, ToolRequest
    from tidegate._types import ContextArguments


class Tool(SlotContext["Tool"]):
    """The context manager and decorator of `Gate.tool`, which holds a slot of a tool.

    In a `with` statement, `as` binds the `Tool` itself.
    """

    _method = "tool"

    def __init__(self, gate: Gate, name: str, context: ContextArguments, yield_slot: bool) -> None:
        """Stores what to acquire. The constructor acquires nothing.

        Args:
            gate: As for `SlotContext`.
            name: Name of the configured tool.
            context: As for `SlotContext`.
            yield_slot: Whether to release the task's model slots while the task waits for the tool
                and holds it.

        """
        super().__init__(gate, name, context)
        self._yield_slot = yield_slot

    def _acquire(self, port: Port, context: Context | None) -> tuple[Future[Permit | Error], int]:
        return self._request(context).wait(port)

    def _acquire_blocking(self, context: Context | None) -> Permit | Error:
        return self._request(context).wait_blocking()

    def _request(self, context: Context | None) -> ToolRequest:
        """Requests a slot of the tool. Warns if the task would wait while it holds a model slot.

        If Python is configured to raise the `SlotHeldWarning` as an exception, the request is
        withdrawn.
        """
        request = self._gate.request_tool(self._name, context, task_id(), self._yield_slot)
        if request.advice is not None:
            # The wait may be long, so the warning comes first.
            try:
                warn_of_held_slot(request.advice)
            except BaseException:
                request.close()
                raise
        return request

    def _context_while_held(self, permit: Permit, requested: Context | None) -> Context | None:  # noqa: ARG002
        # The permit's context lists the held tools, so that a cycle of tools is rejected.
        return permit.context

    def _entered_value(self, permit: Permit) -> Tool:  # noqa: ARG002
        return self
