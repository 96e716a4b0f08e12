"""Text that came from runs, made safe to print: it was written by models, tools and files, and may be hostile.

Rule: whatever a terminal could take for an order (escape sequences, backspaces, carriage returns, letters that turn
the direction of the line) is shown as an escape. Nothing here is ever read as markup.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

# Control characters of both sets but line feed and tab, and the invisible letters that reorder or hide text.
_ORDERS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_GAPS: Final = re.compile(r"\s+")


def safe(text: str) -> str:
    """Return *text* with everything escaped that a terminal could obey; line feeds and tabs stay."""
    return _ORDERS.sub(lambda found: _escaped(found.group()), text.replace("\r\n", "\n"))


def _escaped(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def safe_json(text: str) -> str:
    """Return JSON *text* with the same letters written as JSON writes them; it means the same."""
    return _ORDERS.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def one_line(text: str, width: int = 100) -> str:
    """Return *text* safe, in one line and within *width* characters."""
    line = safe(_GAPS.sub(" ", text[: 8 * width]).strip())
    return line if len(line) <= width and len(text) <= 8 * width else f"{line[: width - 1]}…"


def shown_arguments(arguments: str, width: int = 100) -> str:
    """Return a call's JSON arguments as `name=value, …`, in one line; what is no JSON object is shown as it is."""
    try:
        values = json.loads(arguments)
    except ValueError:
        return one_line(arguments, width)
    if not isinstance(values, dict):
        return one_line(arguments, width)
    room = max(16, width // max(1, len(values)))
    return one_line(", ".join(f"{key}={_shown_value(value, room)}" for key, value in values.items()), width)


def _shown_value(value: Any, room: int) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= room else f"{text[: room - 1]}…"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 turn`, `2 turns`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
