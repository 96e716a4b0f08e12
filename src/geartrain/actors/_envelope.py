"""What a message travels in."""

from __future__ import annotations

from typing import Any, Final

from geartrain.actors._reply import Reply


class Signal:
    """A message that no sender has sent. If it is not handled, nobody has lost anything: it is no dead letter."""

    __slots__ = ()


# The first that an actor is given, which has its `started` called.
START: Final = Signal()

# In its turn, the next notice of a watched actor's end is handled; at most one of these is on its way.
NOTICE: Final = Signal()


class Envelope:
    """A message on its way to an actor, and where its answer goes. `expires_at` is by the loop's clock."""

    __slots__ = ("expires_at", "message", "reply")

    def __init__(self, message: Any, reply: Reply[Any] | None, expires_at: float | None) -> None:
        self.message = message
        self.reply = reply
        self.expires_at = expires_at
