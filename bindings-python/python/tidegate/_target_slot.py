"""Slots of targets, for calls that are not made by a wrapped HTTP client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate._native import Slot
from tidegate._slot_context import SlotContext
from tidegate._task_id import task_id

if TYPE_CHECKING:
    from asyncio import Future

    from tidegate._errors import Error
    from tidegate._native import Context, Port


class TargetSlot(SlotContext[Slot]):
    """The context manager and decorator of `Gate.slot`, which holds a slot of a target.

    In a `with` statement, `as` binds the `tidegate.Slot` that is held.
    """

    _method = "slot"

    def _acquire(self, port: Port, context: Context | None) -> tuple[Future[Slot | Error], int]:
        return self._gate.acquire_slot(port, self._name, context, task_id())

    def _acquire_blocking(self, context: Context | None) -> Slot | Error:
        return self._gate.acquire_slot_blocking(self._name, context, task_id())

    def _entered_value(self, permit: Slot) -> Slot:
        return permit

    def _release(self, permit: Slot, error: BaseException | None) -> None:
        permit.close(error is None)
