"""What is refused at the edge of every store, before anything is written.

Text with NUL characters is fine in one database and fails in another in the middle of a run; lone surrogates
cannot be written as UTF-8 at all. So neither gets into any store: not in ids, and not in the small texts beside
them. Bodies, checkpoints, specs and artifacts are bytes and may hold anything.
"""

from __future__ import annotations

from typing import Any, Final

from geartrain.errors import InvalidValue
from geartrain.persistence._protocol import Entry, Head

ID_CHARACTERS: Final = 200


def check_text(name: str, text: str) -> None:
    """Refuse text that some store could not hold.

    Raises:
        InvalidValue: *text* has a NUL character or a lone surrogate in it.
    """
    if text.isascii():
        if "\x00" not in text:
            return
    elif "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text):
        return
    raise InvalidValue(name, "text without NUL characters and lone surrogates", text)


def check_id(name: str, text: str) -> None:
    """Refuse an id that is empty, too long, or of characters that some store could not hold.

    Raises:
        InvalidValue: It is one of these.
    """
    if not 0 < len(text) <= ID_CHARACTERS:
        raise InvalidValue(name, f"1 to {ID_CHARACTERS} characters long", text)
    check_text(name, text)


def check_entry(entry: Entry) -> None:
    """Refuse an entry that no store could write.

    Raises:
        InvalidValue: An id or text is refused, or the events are not numbered from `expected` + 1.
    """
    check_id("run_id", entry.run_id)
    if entry.expected < 0:
        raise InvalidValue("entry.expected", "0 or more", entry.expected)
    if not entry.events and not entry.expected:
        raise InvalidValue("entry.events", "at least one event for a new run", entry.events)
    for seq, event in enumerate(entry.events, entry.expected + 1):
        if event.seq != seq:
            raise InvalidValue("event.seq", f"numbered from `expected` without gaps (here {seq})", event.seq)
        check_id("event.id", event.id)
        for text in (event.type, event.digest, event.path):
            check_text("event.type, digest and path", text)
    check_head(entry.head)
    for item in entry.outgoing:
        check_id("outgoing.run_id", item.run_id)
        check_id("outgoing.id", item.id)
        check_text("outgoing.type", item.type)
    for digest in (*entry.specs, *entry.artifacts):
        check_id("digest", digest)


def check_head(head: Head) -> None:
    """Refuse a head with text in it that some store could not hold.

    Raises:
        InvalidValue: There is some.
    """
    check_text("head.state", head.state)
    check_text("head.agent", head.agent)
    for run_id in (head.parent, head.root):
        if run_id is not None:
            check_id("head.parent and root", run_id)
    for hold in head.holds:
        check_text("head.holds", hold)
    for name, flat in (("head.counters", head.counters), ("head.labels", head.labels)):
        for pair in flat.items():
            _check_pair(name, pair)


def _check_pair(name: str, pair: tuple[Any, Any]) -> None:
    for part in pair:
        if isinstance(part, str):
            check_text(name, part)


def hold_kind(hold: str) -> str:
    """Return the kind of a hold: the part before its bracket."""
    return hold.partition("(")[0]
