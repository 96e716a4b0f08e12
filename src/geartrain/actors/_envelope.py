"""What a message travels in."""

from __future__ import annotations

from typing import Any, Final

from geartrain.actors._reply import Reply

# In place of a message: the first that an actor is given, which has its `started` called.
START: Final = object()

# Likewise: in its turn, the next notice of a watched actor's end is handled; at most one of these is on its way.
NOTICE: Final = object()


class Envelope:
    """A message on its way to an actor, and where its answer goes. `expires_at` is by the loop's clock."""

    __slots__ = ("expires_at", "message", "reply")

    def __init__(self, message: Any, reply: Reply[Any] | None, expires_at: float | None) -> None:
        self.message = message
        self.reply = reply
        self.expires_at = expires_at
