"""What a context provider tells the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """A text that the model is to know, given by a context provider; it stands before the input.

    A `pinned` one is neither dropped nor shortened, however long the run is; the room that it takes is gone for good.
    """

    text: str
    pinned: bool = False
