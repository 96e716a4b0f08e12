"""What a model sees of a result: clean text of bounded size, and the bytes that are kept of the whole.

Rule 1: whatever a tool returns, this gives an `Outcome`; it never raises. The effect has happened, and a result that
cannot be stored must not make anybody run it again.
Rule 2: text is valid UTF-8 without control characters other than newline and tab, so that every store takes it.
Rule 3: memory and time per step are bounded, whatever the size of the value: it is cleaned slice by slice.
"""

from __future__ import annotations

import codecs
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from geartrain.ids import digest
from geartrain.limits import Limits
from geartrain.machine import ResultStatus
from geartrain.tools._json import TEXT_SLICE, Unstorable, pieces, type_name

NO_OUTPUT: Final = "(no output)"
JSON_BYTES_MAX: Final = 4 * 1024 * 1024
MESSAGE_CHARACTERS_MAX: Final = 2_000
_ODD: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]+")
_ODD_ASCII: Final = bytes([*range(9), *range(11, 32), 127])

_ESCAPES: Final = {chr(code): f"\\x{code:02x}" for code in range(0x100)} | {
    chr(code): f"\\u{code:04x}" for code in range(0xD800, 0xE000)
}

# The first bytes of what is not text, by the media type that they announce.
_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x7fELF", "application/x-executable"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
)


class Outcome(msgspec.Struct, frozen=True):
    """How a call ended. `text` is what the model sees: cleaned, and trimmed to `limits.result_context_bytes`.

    `size` is the number of bytes of the whole cleaned output (of what was converted, where that is cut off).
    `full` is set when `text` does not show everything: the whole output, up to `limits.result_stored_bytes`, to be
    stored as an artifact of `media_type`. `tries` counts how often the function was run. `lost` says why it is not
    known whether the effect has happened: the process that the function ran in has ended.
    """

    status: ResultStatus
    text: str
    size: int = 0
    full: bytes | None = None
    media_type: str = "text/plain"
    tries: int = 1
    lost: str = ""


def cleaned(text: str, *, json: bool = False) -> str:
    r"""Return *text* with CRLF and CR as newlines, and other control characters and lone surrogates escaped.

    An escape is visible text: `\x00`, `\udc80`; within JSON always of four digits, so that it stays JSON.
    """
    if text.isascii() and len(text.encode().translate(None, _ODD_ASCII)) == len(text):
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _ODD.sub(_escaped_json if json else _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return "".join([_ESCAPES[character] for character in found[0]])


def _escaped_json(found: re.Match[str]) -> str:
    return "".join([f"\\u{ord(character):04x}" for character in found[0]])


def present(value: object, *, context_bytes: int, stored_bytes: int) -> Outcome:
    """Return what *value*, returned by a tool, becomes. Never raises; what cannot be stored is said so in words.

    Args:
        value: Text stays text, bytes become text if they are, None is empty, other data becomes JSON.
        context_bytes: The most that `text` may have.
        stored_bytes: The most that `full` may have.
    """
    try:
        return _presented(value, context_bytes, stored_bytes)
    except Unstorable as error:
        reason = str(error)
    except BaseException as error:  # noqa: BLE001 - strangers' properties and conversions run in here
        reason = f"converting it raised {type_name(error)}"
    text = cleaned(f"done; the result cannot be stored ({type_name(value)}): {reason}")
    return Outcome(ResultStatus.OK, cut(text, context_bytes), len(text.encode()))


def _presented(value: Any, context_bytes: int, stored_bytes: int) -> Outcome:
    if inspect.iscoroutine(value):
        value.close()  # or Python warns, at some later time, that it was never awaited
        raise Unstorable("it is a coroutine that nobody has awaited")
    if value is None:
        return Outcome(ResultStatus.OK, cut(NO_OUTPUT, context_bytes))
    if isinstance(value, str):
        collected = _Collected(context_bytes, stored_bytes)
        collected.add_all(_slices(str.__str__(value)))
        return collected.outcome("text/plain")
    if isinstance(value, bytes | bytearray | memoryview):
        return _presented_bytes(value, context_bytes, stored_bytes)
    collected = _Collected(context_bytes, stored_bytes, size_max=JSON_BYTES_MAX)
    collected.add_all(cleaned(piece, json=True) for piece in pieces(value))
    return collected.outcome("application/json")


def _presented_bytes(value: bytes | bytearray | memoryview, context_bytes: int, stored_bytes: int) -> Outcome:
    view = memoryview(value)
    view = view.cast("B") if view.contiguous else memoryview(view.tobytes())
    start = bytes(view[:32])
    kind = next((kind for magic, kind in _MAGIC if start.startswith(magic)), "")
    if not kind and _is_text(view):
        collected = _Collected(context_bytes, stored_bytes)
        collected.add_all(_decoded(view))
        return collected.outcome("text/plain")
    kind = kind or "application/octet-stream"
    text = f"(binary data: {kind}, {len(view):,} bytes"
    # Part of a binary file is of use to nobody, so it is kept whole or not at all.
    full = bytes(view) if len(view) <= stored_bytes else None
    text += f"; it is artifact {digest(full)})" if full is not None else "; too large to be stored)"
    return Outcome(ResultStatus.OK, cut(text, context_bytes), len(view), full, kind)


def _slices(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + TEXT_SLICE
        end += text[end - 1 : end] == "\r"  # keeps CRLF together
        yield cleaned(text[start:end])
        start = end


def _is_text(view: memoryview) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(view), TEXT_SLICE):
            decoder.decode(view[start : start + TEXT_SLICE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _decoded(view: memoryview) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    left = ""
    for start in range(0, len(view), TEXT_SLICE):
        text = left + decoder.decode(view[start : start + TEXT_SLICE])
        left = "\r" if text.endswith("\r") else ""  # keeps CRLF together
        yield cleaned(text.removesuffix("\r"))
    yield cleaned(left)


class _Collected:
    """Text added up: its size, the bytes that are stored, and the last bytes."""

    def __init__(self, context_bytes: int, stored_bytes: int, size_max: float = float("inf")) -> None:
        self._context_bytes = context_bytes
        # Text that fits the context is shown whole, even where less than that may be stored.
        self._keep = max(context_bytes, stored_bytes)
        self._stored_bytes = stored_bytes
        self._size_max = size_max
        self._head = bytearray()
        self._tail = b""
        self._size = 0
        self._stopped = False

    def add_all(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._add(text.encode())
            if self._size > self._size_max:
                self._stopped = True
                return

    def _add(self, data: bytes) -> None:
        self._size += len(data)
        room = self._keep - len(self._head)
        self._head += data[:room]
        over = data[room:]
        if over:
            before = self._tail or bytes(self._head[-self._context_bytes :])
            self._tail = (before + over)[-self._context_bytes :]

    def outcome(self, media_type: str) -> Outcome:
        if self._size <= self._context_bytes and not self._stopped:
            text = self._head.decode() or cut(NO_OUTPUT, self._context_bytes)
            return Outcome(ResultStatus.OK, text, self._size, None, media_type)
        full = at_border(bytes(self._head[: self._stored_bytes]))
        return Outcome(ResultStatus.OK, self._trimmed(full), self._size, full, media_type)

    def _trimmed(self, full: bytes) -> str:
        whole = f"more than {self._size:,}" if self._stopped else f"{self._size:,}"
        where = "the whole output is" if len(full) == self._size else f"the first {len(full):,} bytes are"
        ending = f" of {whole} bytes left out; {where} artifact {digest(full)}]"
        room = self._context_bytes - len(f"\n[… {self._size:,}{ending}\n".encode())
        if room <= 0:
            return cut(f"[… {self._size:,}{ending}", self._context_bytes)
        # The tail of what was cut off while being converted is the middle of something.
        head = _whole_lines(bytes(self._head[: room if self._stopped else room * 2 // 3]))
        tail = b"" if self._stopped else _whole_lines_from((self._tail or bytes(self._head))[head_room(room) :])
        note = f"\n[… {self._size - len(head) - len(tail):,}{ending}\n"
        return head.decode() + note + tail.decode()


def head_room(room: int) -> int:
    """Return where a tail begins that may have a third of *room*, counted from the end (negative)."""
    return -max(1, room // 3)


def cut(text: str, size: int) -> str:
    """Return as much of the start of *text* as has at most *size* bytes."""
    data = text.encode()
    return text if len(data) <= size else at_border(data[:size]).decode()


def at_border(data: bytes) -> bytes:
    """Return *data*, cut anywhere, without an incomplete last character."""
    return data.decode("utf-8", "ignore").encode()


def _whole_lines(data: bytes) -> bytes:
    # A line border is preferred if it costs no more than a quarter.
    end = data.rfind(b"\n")
    return data[:end] if end >= len(data) * 3 // 4 else at_border(data)


def _whole_lines_from(data: bytes) -> bytes:
    start = data.find(b"\n")
    if 0 <= start <= len(data) // 4:
        return data[start + 1 :]
    while data and data[0] & 0xC0 == 0x80:  # the rest of a character
        data = data[1:]
    return data


def error_text(error: BaseException) -> str:
    """Return type and message of an error as clean text of bounded size; never raises."""
    if isinstance(error, BaseExceptionGroup):
        leaves = "; ".join(error_text(inner) for inner in _leaves(error))
        return cleaned(f"{type_name(error)}: {leaves}"[:MESSAGE_CHARACTERS_MAX])
    try:
        message = str(error)[: MESSAGE_CHARACTERS_MAX + 1]
    except BaseException as second:  # noqa: BLE001 - a stranger's __str__
        message = f"(its message cannot be shown: __str__ raised {type_name(second)})"
    if len(message) > MESSAGE_CHARACTERS_MAX:
        message = message[: MESSAGE_CHARACTERS_MAX - 1] + "…"
    return cleaned(f"{type_name(error)}: {message}" if message else type_name(error))


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting and len(leaves) < 5:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting = [*error.exceptions[:5], *waiting]
        else:
            leaves.append(error)
    return leaves


def unshown(reason: str, limits: Limits) -> Outcome:
    """Return the outcome of a call whose effect has happened and whose result cannot be had."""
    text = cleaned(f"done; the result cannot be shown: {reason}")
    return Outcome(ResultStatus.OK, cut(text, limits.result_context_bytes), len(text.encode()))
