"""A summary of a conversation, made of pieces of it: the questions, the answers, and the lines that were cited.

The cited lines are written as search results are, so that the model that reads the summary can cite them again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from geartrain.machine import Message

SUMMARY_CHARS_MAX: Final = 2_000

# How the machine's own note begins that holds a summary.
_SUMMARY: Final = "[Summary of "

_CITED: Final = re.compile(r"^(?:\./)?([^\s:*`][^:\n`]{0,300}?:\d{1,7}): ?(.{1,160})$")


def is_summary(message: Message) -> bool:
    """Say whether *message* holds a summary of what was said before."""
    return message.note and message.text.startswith(_SUMMARY)


def summary_of(messages: Sequence[Message]) -> str:
    """Return at most 2,000 characters that keep what was asked, answered and found."""
    asked, answered, cited, used = [], [], [], []
    for message in messages:
        text = " ".join(message.text.split())
        if is_summary(message):
            cited.extend(_citations(message.text))
            asked.extend(re.findall(r"^Asked: (.+)$", message.text, re.MULTILINE))
        elif message.role == "user" and text and not message.note:
            asked.append(text[:300])
        elif message.role == "assistant" and text and not message.calls:
            answered.append(text[:300])
        elif message.role == "tool":
            used.append(message.tool)
            cited.extend(_citations(message.text))
    lines = [f"Asked: {text}" for text in dict.fromkeys(asked[-4:])]
    lines += [f"Answered: {text}" for text in answered[-2:]]
    if used:
        counts = ", ".join(f"{name} ({used.count(name)})" for name in dict.fromkeys(used) if name)
        lines.append(f"Tools used: {counts}")
    # Taken evenly from all that was found: the first results are not better than the last.
    distinct = list(dict.fromkeys(cited))
    lines += distinct[:: max(1, len(distinct) // 12)][:12]
    return _fitting(lines)


def _citations(text: str) -> list[str]:
    found = (_CITED.match(line) for line in text.split("\n"))
    return [f"{match.group(1)}: {match.group(2)}" for match in found if match]


def _fitting(lines: Sequence[str]) -> str:
    kept: list[str] = []
    left = SUMMARY_CHARS_MAX
    for line in lines:
        if len(line) + 1 <= left:
            kept.append(line)
            left -= len(line) + 1
    return "\n".join(kept)
