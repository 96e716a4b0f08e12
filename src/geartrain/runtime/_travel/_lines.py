"""The form of an exported run: one JSON object a line, each sealed by a digest over all lines before it.

    header      what this is, of which run, how it stood, what was left out, how many lines follow
    spec …      the agents' specs, by digest
    event …     the journal: number, id, type, version, time, path of states, body
    artifact …  large outputs, each before the event that refers to it
    end         how many there were

The last field of a line, `seal`, is the digest of the seal before it and of the line without it: so a line that was
changed, moved, lost or added is found, and named. It is no signature: whoever wants to deceive can seal anew.
"""

from __future__ import annotations

from typing import Final

import msgspec

from geartrain.errors import FormatUnknown
from geartrain.ids import digest
from geartrain.persistence import Head

FORMAT: Final = "geartrain run"
VERSION: Final = 1
_SEAL: Final = b',"seal":"'
_DIGITS: Final = 32


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="header"):
    """The first line. `redacted` lists the rules by which texts were left out (of a text rule only its kind).

    `lengths_kept` says that what was left out kept its length; `set_apart` why the store sets the run apart.
    """

    format: str
    version: int
    geartrain: str
    run: str
    events: int
    specs: int
    head: Head
    set_apart: str = ""
    redacted: tuple[str, ...] = ()
    lengths_kept: bool = False
    without_artifacts: bool = False


class SpecLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="spec"):
    """An agent's spec, as it is stored."""

    digest: str
    body: msgspec.Raw


class EventLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="event"):
    """An event, as it is stored."""

    seq: int
    id: str
    type: str
    version: int
    time: float
    path: str = ""
    outside: bool = False
    digest: str = ""
    checkpointed: bool = False
    body: msgspec.Raw


class ArtifactLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="artifact"):
    """A large output, in base64."""

    digest: str
    data: bytes


class EndLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="end"):
    """The last line. `missing` are artifacts that the journal refers to and the store did not have."""

    events: int
    specs: int
    artifacts: int
    missing: tuple[str, ...] = ()


Line = Header | SpecLine | EventLine | ArtifactLine | EndLine


class _Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the first line before anything else, whatever its version."""

    format: str = ""
    version: int = 0
    geartrain: str = ""


class BrokenLine(Exception):
    """A line that is not as it was written, and why."""


class Writer:
    """Turns lines into bytes, each sealed with those before it."""

    __slots__ = ("_seal",)

    def __init__(self) -> None:
        self._seal = ""

    def sealed(self, line: Line) -> bytes:
        """Return *line* as it is written, with its line feed."""
        text = msgspec.json.encode(line)
        self._seal = _sealed(self._seal, text)
        return text[:-1] + _SEAL + self._seal.encode() + b'"}\n'


class Reader:
    """Turns bytes into lines again, and knows whether each follows those before it."""

    __slots__ = ("_decoder", "_seal")

    def __init__(self) -> None:
        self._seal = ""
        self._decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)

    def line(self, data: bytes) -> Line:
        """Return the line that *data* holds.

        Raises:
            BrokenLine: It is none, or not as it was written.
            FormatUnknown: It is the first line of an export that is newer than this version.
        """
        if not self._seal:
            _check_opening(data)
        text, between, rest = data.rstrip(b"\n").rpartition(_SEAL)
        if not between or len(rest) != _DIGITS + 2 or not rest.endswith(b'"}'):
            raise BrokenLine("it has no seal" if data.endswith(b"\n") else "the file ends in the middle of it")
        text += b"}"
        self._seal = _sealed(self._seal, text)
        if rest[:_DIGITS] != self._seal.encode():
            raise BrokenLine("it was changed, or lines before it were taken away, added or moved")
        try:
            return self._decoder.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise BrokenLine(f"it is none of this format: {problem}") from None


def _sealed(before: str, text: bytes) -> str:
    return digest(before.encode() + text)


def _check_opening(data: bytes) -> None:
    try:
        opening = msgspec.json.decode(data, type=_Opening)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BrokenLine("it does not begin an exported run") from None
    if opening.format != FORMAT:
        raise BrokenLine("it does not begin an exported run")
    if opening.version > VERSION:
        found = f"version {opening.version} (written by geartrain {opening.geartrain})"
        raise FormatUnknown("exported run", found, f"up to version {VERSION}")
