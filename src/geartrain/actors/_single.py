"""A cell for behaviours that take their messages one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from geartrain.actors._cell import Cell, CellState

M = TypeVar("M")
OnFailure = Callable[[BaseException, Sequence[M]], None]


class SingleCell(Cell[M]):
    """A cell whose batches hold one message each.

    So each other message is still in the mailbox: it can be dropped, given back, or kept for a behaviour that comes
    after a restart. A turn is as long as any cell's: up to *messages_per_turn* of them are handled in it.
    """

    __slots__ = ()

    def _turn(self) -> None:
        if self._state is not CellState.READY:  # stopped since
            return
        self._state = CellState.WORKING
        self._turns += 1
        for _ in range(self._messages_per_turn):
            message = self._mailbox.take_nowait()
            if message is None:
                break
            if not self._work([message]):
                return
        self._go_on()
