"""Context providers: what tells the model something before a run begins, and what becomes of what it tells.

Rule 1: a provider that raises, hangs or answers nonsense fails the run: it must not go on without what it was to know.
Rule 2: what it tells is bounded, and what is cut off says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from geartrain.errors import InvalidValue
from geartrain.limits import Limits
from geartrain.machine import Message
from geartrain.runtime._edge import clean_text
from geartrain.runtime._policy import RunView
from geartrain.tools import Note

Told = str | Note | Sequence[Note | str] | None
ContextProvider = Callable[[RunView], Told | Awaitable[Told]]

PROVIDERS_MAX: Final = 32
NOTES_MAX: Final = 100
NAME_CHARACTERS: Final = 200


def named_providers(agent: str, providers: Sequence[ContextProvider]) -> Mapping[str, ContextProvider]:
    """Return an agent's context providers by name, in their order.

    Raises:
        InvalidValue: One cannot be called, has no name, or two have the same; or there are too many.
    """
    what = f"the context providers of agent {agent!r}"
    if not isinstance(providers, Sequence) or isinstance(providers, str):
        raise InvalidValue(what, "a sequence of functions", providers)
    if len(providers) > PROVIDERS_MAX:
        raise InvalidValue(what, f"at most {PROVIDERS_MAX}", len(providers))
    named: dict[str, ContextProvider] = {}
    for provider in providers:
        if not callable(provider):
            raise InvalidValue(what, "functions of a RunView", provider)
        name = getattr(provider, "name", None) or getattr(provider, "__name__", type(provider).__name__)
        if not isinstance(name, str) or len(name) > NAME_CHARACTERS or not name.isprintable():
            raise InvalidValue(what, f"named in at most {NAME_CHARACTERS} printable characters", name)
        if name in named:
            raise InvalidValue(what, "providers with different names (`name` or `__name__`)", name)
        named[name] = provider
    return named


def messages_told(name: str, told: Any, room: int) -> tuple[Message, ...]:
    """Return what a provider told as messages of the context, in at most *room* characters.

    Raises:
        InvalidValue: It is no text, no note, and no sequence of them.
    """
    notes = [told] if isinstance(told, str | Note) else [] if told is None else told
    if not isinstance(notes, Sequence):
        raise InvalidValue("what it told", "a text, a Note, a sequence of them, or None", type(told).__name__)
    messages: list[Message] = []
    whole = len(notes) <= NOTES_MAX
    told_characters = 0
    for note in islice(notes, NOTES_MAX):
        text, pinned = _read(note)
        told_characters += len(text)
        shown = clean_text(text[: max(0, room)])[: max(0, room)]
        whole = whole and len(text) <= room
        room -= len(shown)
        if shown.strip():
            messages.append(Message(role="user", text=shown, pinned=pinned, note=True, provider=name))
    if not whole:
        much = f"{len(notes):,} notes" if len(notes) > 1 else f"{told_characters:,} characters"
        said = f"[… {name} told {much}; what is not here was too much]"
        messages.append(Message(role="user", text=said, note=True, provider=name))
    return tuple(messages)


def _read(note: Any) -> tuple[str, bool]:
    text, pinned = (note.text, note.pinned) if isinstance(note, Note) else (note, False)
    if not isinstance(text, str) or not isinstance(pinned, bool):
        raise InvalidValue("what it told", "made of texts and Notes of text", type(text).__name__)
    return text, pinned


def room_for(messages: Sequence[Message], limits: Limits) -> int:
    """Return how many characters the next provider may tell, after what others told: all of it goes into one event."""
    told = sum(len(message.text) for message in messages)
    return min(limits.context_provider_bytes, max(0, limits.event_bytes // 4 - told))
