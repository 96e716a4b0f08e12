"""One actor: a mailbox, a behaviour and a life."""

from __future__ import annotations

from geartrain.actors._cell import Behaviour, Cell, CellState, CellStatistics
from geartrain.actors._errors import ActorFailed, ActorNotBroken, ActorStopped
from geartrain.actors._reply import Reply

__all__ = [
    "ActorFailed",
    "ActorNotBroken",
    "ActorStopped",
    "Behaviour",
    "Cell",
    "CellState",
    "CellStatistics",
    "Reply",
]
