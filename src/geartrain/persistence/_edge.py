"""What is refused at the edge of every store, before anything is written.

Text with NUL characters is fine in one database and fails in another in the middle of a run; lone surrogates
cannot be written as UTF-8 at all. So neither gets into any store: not in ids, and not in the small texts beside
them. Bodies, checkpoints, specs and artifacts are bytes and may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from geartrain.errors import InvalidValue
from geartrain.persistence._protocol import Entry, RefusedEvent

ID_CHARACTERS: Final = 200


def check_text(name: str, text: str) -> None:
    """Refuse text that some store could not hold.

    Raises:
        InvalidValue: *text* has a NUL character or a lone surrogate in it.
    """
    if not _holdable(text):
        raise InvalidValue(name, "text without NUL characters and lone surrogates", text)


def _holdable(text: str) -> bool:
    if "\x00" in text:
        return False
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def check_id(name: str, text: str) -> None:
    """Refuse an id that is empty, too long, or of characters that some store could not hold.

    Raises:
        InvalidValue: It is one of these.
    """
    _check_length(name, text)
    check_text(name, text)


def _check_length(name: str, text: str) -> None:
    if not 0 < len(text) <= ID_CHARACTERS:
        raise InvalidValue(name, f"1 to {ID_CHARACTERS} characters long", text)


def check_refused(refused: Mapping[str, Sequence[RefusedEvent]]) -> None:
    """Refuse texts that some store could not hold.

    Raises:
        InvalidValue: An id or text is one of these.
    """
    for run_id, events in refused.items():
        check_id("run_id", run_id)
        for event in events:
            for name in ("id", "type", "state", "reason"):
                check_text(f"refused.{name}", getattr(event, name))


def check_entry(entry: Entry) -> None:
    """Refuse an entry that no store could write.

    Raises:
        InvalidValue: An id or text is refused, or the events are not numbered from `expected` + 1.
    """
    if entry.expected < 0:
        raise InvalidValue("entry.expected", "0 or more", entry.expected)
    if not entry.events and not entry.expected:
        raise InvalidValue("entry.events", "at least one event for a new run", entry.events)
    for seq, event in enumerate(entry.events, entry.expected + 1):
        if event.seq != seq:
            raise InvalidValue("event.seq", f"numbered from `expected` without gaps (here {seq})", event.seq)
    if not _is_plain(entry):
        ids, texts = _words(entry)
        for name, text in ids:
            check_id(name, text)
        for name, text in texts:
            check_text(name, text)


def _is_plain(entry: Entry) -> bool:
    """Say at once whether all words are harmless: every append is asked, and nearly always it is so.

    A no means only that each word has to be looked at.
    """
    head, run_id = entry.head, entry.run_id
    if not run_id or entry.outgoing or entry.specs or entry.artifacts or head.parent == "" or head.root == "":
        return False
    longest = len(run_id)
    text = f"{run_id}{head.state}{head.agent}{head.parent}{head.root}"
    for event in entry.events:
        id_ = event.id
        if not id_:
            return False
        longest = max(longest, len(id_))
        text += f"{id_}{event.type}{event.digest}{event.path}"
    for words in (head.holds, head.counters, head.labels, head.labels.values()):
        if words:
            text += "".join(words)
    for value in head.counters.values():
        if type(value) is str:
            text += value
    longest = max(longest, len(head.parent or ""), len(head.root or ""))
    return longest <= ID_CHARACTERS and text.isascii() and "\x00" not in text


_Named = tuple[str, str]


def _words(entry: Entry) -> tuple[list[_Named], list[_Named]]:
    """Return all ids and all other texts of *entry*, each with what it is."""
    head = entry.head
    ids = [("run_id", entry.run_id)]
    texts = [("head.state", head.state), ("head.agent", head.agent)]
    for event in entry.events:
        ids.append(("event.id", event.id))
        texts += (("event.type", event.type), ("event.digest", event.digest), ("event.path", event.path))
    if head.parent is not None:
        ids.append(("head.parent", head.parent))
    if head.root is not None:
        ids.append(("head.root", head.root))
    if head.holds:
        texts += [("head.holds", hold) for hold in head.holds]
    for item in entry.outgoing:
        ids += (("outgoing.run_id", item.run_id), ("outgoing.id", item.id))
        texts.append(("outgoing.type", item.type))
    for digests in (entry.specs, entry.artifacts):
        ids += [("digest", digest) for digest in digests]
    for name, flat in (("head.counters", head.counters), ("head.labels", head.labels)):
        for key, value in flat.items():
            texts.append((name, key))
            if type(value) is str:
                texts.append((name, value))
    return ids, texts


def hold_kind(hold: str) -> str:
    """Return the kind of a hold: the part before its bracket."""
    return hold.partition("(")[0]
