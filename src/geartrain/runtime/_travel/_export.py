"""Writing a run out of its store, so that it can be read where there is no store."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from geartrain.errors import FormatUnknown, RunNotFound
from geartrain.ids import digest
from geartrain.machine import (
    EVENT_VERSIONS,
    Refusal,
    Run,
    decode_event,
    decode_spec,
    encode_event,
    encode_spec,
    event_digest,
    join_path,
    step,
)
from geartrain.persistence import Journal, LoadedRun, RunCorrupt, StoredEvent
from geartrain.runtime._reading._runs import replay, stored_events
from geartrain.runtime._travel._errors import RedactionRefused
from geartrain.runtime._travel._lines import FORMAT, VERSION, ArtifactLine, EndLine, EventLine, Header, SpecLine, Writer
from geartrain.runtime._travel._redaction import Redaction
from geartrain.version import VERSION as GEARTRAIN

_DIGEST: Final = re.compile("[0-9a-f]{32}")
_REFERENCE: Final = b'"artifact"'
_JSON: Final[msgspec.json.Decoder[dict[str, Any]]] = msgspec.json.Decoder(dict[str, Any])


@dataclass(slots=True)
class _Copied:
    """One event as the export has it, and the artifacts it refers to: None for one that is not to be had."""

    event: StoredEvent
    artifacts: Mapping[str, bytes | None]


async def export_run(
    journal: Journal, run_id: str, *, redact: Sequence[str] = (), artifacts: bool = True
) -> AsyncIterator[bytes]:
    """Yield a run as lines: all that is stored of it at this moment, so that it can be read without its store.

    The same run gives the same lines. Nothing is yielded before it is known that the run, without what *redact*
    leaves out, still goes the way it went. If the iteration ends early, what was yielded is refused as cut.

    Args:
        journal: Where the run is.
        run_id: The run.
        redact: What is to be left out; see `Redaction` for the rules.
        artifacts: Whether large outputs go with it.

    Raises:
        RunNotFound: There is no such run.
        RunCorrupt: What is stored of it is damaged.
        InvalidValue: A redaction rule is none.
        RedactionRefused: Without what is left out, the run would go another way.
    """
    redaction = Redaction(redact)
    loaded = await journal.load(run_id)
    if loaded is None:
        raise RunNotFound(run_id)
    redaction = await _checked(journal, loaded, redaction, redact) if redact else redaction
    copy = _Copy(journal, redaction if redact else None, loaded.specs)
    writer = Writer()
    yield writer.sealed(_header(loaded, redaction, artifacts=artifacts, specs=len(copy.specs)))
    for name, body in copy.specs.items():
        yield writer.sealed(SpecLine(digest=name, body=msgspec.Raw(body)))
    written: set[str] = set()
    missing: set[str] = set()
    seq = 0
    async for copied in copy.events(loaded):
        for name, data in copied.artifacts.items():
            if data is None:
                missing.add(name)
            elif artifacts and name not in written:
                written.add(name)
                yield writer.sealed(ArtifactLine(digest=name, data=data))
        yield writer.sealed(_line(run_id, copied.event))
        seq = copied.event.seq
    if seq != loaded.last_seq:  # deleted meanwhile
        raise RunNotFound(run_id)
    end = EndLine(events=loaded.last_seq, specs=len(copy.specs), artifacts=len(written), missing=tuple(sorted(missing)))
    yield writer.sealed(end)


def _header(loaded: LoadedRun, redaction: Redaction, *, artifacts: bool, specs: int) -> Header:
    head = msgspec.structs.replace(loaded.head, labels=redaction.labels(dict(loaded.head.labels)))
    return Header(
        format=FORMAT,
        version=VERSION,
        geartrain=GEARTRAIN,
        run=loaded.run_id,
        events=loaded.last_seq,
        specs=specs,
        head=head,
        set_apart=redaction.text(loaded.mark.reason) if loaded.mark is not None else "",
        redacted=redaction.told,
        lengths_kept=redaction.lengths,
        without_artifacts=not artifacts,
    )


def _line(run_id: str, event: StoredEvent) -> EventLine:
    try:
        msgspec.json.decode(event.body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise RunCorrupt(run_id, f"event {event.seq} ({event.type}) is no JSON: {problem}") from None
    return EventLine(
        seq=event.seq,
        id=event.id,
        type=event.type,
        version=event.version,
        time=event.time,
        path=event.path,
        outside=event.outside,
        digest=event.digest,
        checkpointed=event.checkpointed,
        body=msgspec.Raw(event.body.replace(b"\n", b" ")),  # no text has one in JSON, so only space between is changed
    )


async def _checked(journal: Journal, loaded: LoadedRun, redaction: Redaction, rules: Sequence[str]) -> Redaction:
    """Return the rules as they can be applied: keeping lengths, if the run shortens its context by them."""
    problem = await _problem(journal, loaded, redaction)
    if problem is not None:
        longer = Redaction(rules, lengths=True)
        if await _problem(journal, loaded, longer) is not None:
            raise problem
        redaction = longer
    return Redaction(rules, lengths=redaction.lengths)


async def _problem(journal: Journal, loaded: LoadedRun, redaction: Redaction) -> RedactionRefused | None:
    """Return at which event the run without what is left out goes another way than it is recorded, if it does."""
    run_id = loaded.run_id
    run = Run(id=run_id)
    seq, name = 0, "Spec"
    refused: RedactionRefused | None = None
    try:
        copy = _Copy(journal, redaction, loaded.specs)
        specs = {digest: decode_spec(body) for digest, body in copy.specs.items()}
        async for copied in copy.events(loaded):
            row = copied.event
            seq, name = row.seq, row.type
            result = step(run, decode_event(row.type, row.version, row.body), specs)
            if isinstance(result, Refusal):
                refused = RedactionRefused(run_id, seq, name, f"could not follow: {result.reason}")
                break
            if join_path(result.path) != row.path:
                refused = RedactionRefused(run_id, seq, name, "would lead elsewhere")
                break
            run = result.run
    except FormatUnknown as problem:
        refused = RedactionRefused(run_id, seq, name, f"could not be read ({problem.found})")
    return None if refused is None else await _unless_so_anyway(journal, refused)


async def _unless_so_anyway(journal: Journal, refused: RedactionRefused) -> RedactionRefused | None:
    """Return *refused*, unless the run as it is stored has come to its difference by then."""
    difference = (await replay(journal, refused.run_id)).difference
    return None if difference is not None and difference.seq <= refused.seq else refused


class _Copy:
    """A run as its export has it: as it is stored, or without what a redaction leaves out."""

    def __init__(self, journal: Journal, redaction: Redaction | None, specs: Mapping[str, bytes]) -> None:
        self._journal = journal
        self._redaction = redaction
        self._names: dict[str, str] = {}  # the digests of specs before, and after
        self._artifacts: dict[str, tuple[str, bytes | None]] = {}
        self.specs: dict[str, bytes] = {}
        for name, body in sorted(specs.items()):
            after = body if redaction is None else _without(redaction, body)
            self._names[name] = name if after == body else digest(after)
            self.specs[self._names[name]] = after

    async def events(self, loaded: LoadedRun) -> AsyncIterator[_Copied]:
        async for row in stored_events(self._journal, loaded.run_id):
            if row.seq > loaded.last_seq:
                return
            yield await self._copied(row)

    async def _copied(self, row: StoredEvent) -> _Copied:
        if self._redaction is None and _REFERENCE not in row.body:
            return _Copied(row, {})
        data = _JSON.decode(row.body)
        if self._redaction is None:
            names = sorted({name for _, name in _references(data)})
            return _Copied(row, {name: await self._journal.artifact(name) for name in names})
        body = self._redaction.event(row.type, data)
        artifacts = await self._own_artifacts(body, row.type, self._redaction)
        self._rename(row.type, body, data)
        if body == data:
            return _Copied(row, artifacts)
        encoded = msgspec.json.encode(body)
        if row.version == EVENT_VERSIONS.get(row.type):
            event = decode_event(row.type, row.version, encoded)
            encoded = encode_event(event)
            if row.digest:
                row = msgspec.structs.replace(row, digest=event_digest(event))
        return _Copied(msgspec.structs.replace(row, body=encoded), artifacts)

    def _rename(self, kind: str, body: dict[str, Any], before: dict[str, Any]) -> None:
        """Make anew what was derived from what is left out."""
        assert self._redaction is not None
        if "spec" in body:
            body["spec"] = self._names.get(body["spec"], body["spec"])
        if body.get("arguments_digest"):
            body["arguments_digest"] = self._redaction.digests.get(body["arguments_digest"], body["arguments_digest"])
        if kind == "RunStarted" and body.get("request") and body != before:
            # That of the request as it was could be found again by trying.
            body["request"] = digest(msgspec.json.encode(body, order="sorted"))
        if kind == "ToolFinished" and body.get("text") != before.get("text") and "size" in body:
            body["size"] = body["artifact"]["size"] if body.get("artifact") else len(body["text"].encode())

    async def _own_artifacts(self, body: dict[str, Any], kind: str, redaction: Redaction) -> dict[str, bytes | None]:
        """Return the artifacts of an event without what is left out, and refer to them by their new names."""
        found: dict[str, bytes | None] = {}
        for owner, name in list(_references(body)):
            withheld = redaction.names(kind, "text") or redaction.names(kind, "artifact")
            after, data = ("", None) if withheld else await self._artifact(name, redaction)
            reference = owner["artifact"]
            if not after:  # it cannot be looked into, or all of it is left out
                del owner["artifact"]
            elif isinstance(reference, str):
                owner["artifact"] = after
            else:
                size = len(data) if data is not None else reference.get("size", 0)
                owner["artifact"] = {**reference, "digest": after, "size": size}
            if after:
                found[after] = data
        return found

    async def _artifact(self, name: str, redaction: Redaction) -> tuple[str, bytes | None]:
        if name not in self._artifacts:
            data = await self._journal.artifact(name)
            after = None if data is None else _without_text(redaction, data)
            kept = name if data is None else "" if after is None else digest(after)
            self._artifacts[name] = kept, after
        return self._artifacts[name]


def _references(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield every artifact that JSON data of ours refers to, by its digest, with the object that does."""
    if isinstance(value, dict):
        named = value.get("artifact")
        name = named.get("digest") if isinstance(named, dict) else named
        if isinstance(name, str) and _DIGEST.fullmatch(name):
            yield value, name
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _without(redaction: Redaction, spec: bytes) -> bytes:
    body = _JSON.decode(spec)
    after = redaction.spec(body)
    return spec if after == body else encode_spec(decode_spec(msgspec.json.encode(after)))


def _without_text(redaction: Redaction, data: bytes) -> bytes | None:
    """Return an artifact without what the rules leave out; None if it is no text, so that nobody can tell."""
    try:
        return redaction.text(data.decode()).encode()
    except UnicodeDecodeError:
        return None
