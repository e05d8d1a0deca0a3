"""Slots of tools: named resources with their own caps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate._slot_context import SlotContext
from tidegate._task_id import task_id
from tidegate._warnings import warn_of_held_slot

if TYPE_CHECKING:
    from asyncio import Future

    from tidegate._errors import Error
    from tidegate._native import Asked, Context, Gate, Permit, Port
    from tidegate._types import Lane


class Tool(SlotContext["Tool"]):
    """A context manager and decorator that holds a slot of a tool. `Gate.tool` creates it."""

    _method = "tool"

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments of SlotContext, and one more
        self,
        gate: Gate,
        name: str,
        tenant: str | None,
        lane: Lane | None,
        deadline: float | None,
        yield_slot: bool,
    ) -> None:
        """Stores what to acquire. The constructor acquires nothing."""
        super().__init__(gate, name, tenant, lane, deadline)
        self._yield_slot = yield_slot

    def _acquire(self, port: Port, context: Context | None) -> tuple[Future[Permit | Error], int]:
        return self._request(context).granted(port)

    def _acquire_blocking(self, context: Context | None) -> Permit | Error:
        return self._request(context).granted_blocking()

    def _request(self, context: Context | None) -> Asked:
        asked = self._gate.ask(self._name, context, task_id(), self._yield_slot)
        if asked.advice is not None:
            # The wait may be long, so the warning comes first.
            try:
                warn_of_held_slot(asked.advice)
            except BaseException:
                asked.close()
                raise
        return asked

    def _context_while_held(self, permit: Permit, asked: Context | None) -> Context | None:  # noqa: ARG002
        # The permit's context lists the held tools, so that a cycle of tools is rejected.
        return permit.context

    def _entered_value(self, permit: Permit) -> Tool:  # noqa: ARG002
        return self

    def _release(self, permit: Permit, error: BaseException | None) -> None:  # noqa: ARG002
        permit.close()
