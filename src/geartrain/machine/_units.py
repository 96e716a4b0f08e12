"""Calls and their results in the context: what may not be parted, and how the rest of one is read."""

from __future__ import annotations

from typing import Final

from geartrain.machine._values import Message

# The tool by which a model reads the rest of a result that was shortened.
READ_ARTIFACT: Final = "read_artifact"


def groups(messages: tuple[Message, ...]) -> list[list[Message]]:
    """Return messages in units that may not be parted: an asking message and its results, or one alone."""
    grouped: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and grouped:
            grouped[-1].append(message)
        else:
            grouped.append([message])
    return grouped
