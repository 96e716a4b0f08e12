"""What a runtime and one of its worker processes say to each other: frames over a socket of their own.

Rule 1: a frame is its length and then msgpack of one of the structs below. Nothing is ever unpickled: what a worker
sends was made in a process in which a stranger's code runs.
Rule 2: a frame from a worker has a size limit. More, or anything that is no frame, and the worker is ended.
Rule 3: whatever belongs to a call carries its number, so that what an earlier call left behind is told apart.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from geartrain.limits import Limits
from geartrain.tools._clean import Outcome

LENGTH: Final = struct.Struct(">I")
TRACE_BYTES: Final = 64 * 1024
TRACE_NAME_MAX: Final = 200


class Target(msgspec.Struct, frozen=True):
    """Where a worker finds a tool: each place is `module:qualified.name`.

    `is_tool` when the tool itself is found there; else it is its plain function, and the hooks have their own places.
    `main` says how the program's main script is loaded, if the tool lives in it: `path:…` or `module:…`.
    """

    tool: str
    place: str
    is_tool: bool
    verify: str = ""
    present: str = ""
    main: str = ""


class Prepare(msgspec.Struct, tag="prepare"):
    """To a worker: find a tool, importing what it needs."""

    target: Target


class Call(msgspec.Struct, tag="call"):
    """To a worker: run a tool that was prepared, or ask it whether its write was done."""

    number: int
    target: Target
    mode: Literal["run", "verify"]
    arguments: str
    run_id: str
    call_id: str
    idempotency_key: str
    attempt: int
    deadline: float | None
    context: dict[str, Any]
    principal: str
    limits: Limits


class Result(msgspec.Struct, tag="result"):
    """To a worker: the result of an earlier call that the tool has asked for, or why there is none."""

    text: str
    problem: str = ""


class Prepared(msgspec.Struct, tag="prepared"):
    """From a worker: the tool was found, or why not."""

    problem: str = ""


class Traced(msgspec.Struct, tag="traced"):
    """From a worker: a trace record of a call."""

    number: int
    name: str
    payload: dict[str, Any]


class Returned(msgspec.Struct, tag="returned"):
    """From a worker: the function has returned, so its effect has happened."""

    number: int


class ResultWanted(msgspec.Struct, tag="result_wanted"):
    """From a worker: a tool asks for the result of an earlier call; its own call goes on with a `Result`."""

    number: int
    call_id: str


class Answered(msgspec.Struct, tag="answered"):
    """From a worker: what came of a run. `reusable` when nothing of the call is left in the worker."""

    number: int
    outcome: Outcome
    may_retry: bool
    reusable: bool


class Verified(msgspec.Struct, tag="verified"):
    """From a worker: what a tool's `verify` has found; the text is the result's or the reason."""

    number: int
    found: Literal["done", "not_done", "unknown"]
    text: str
    reusable: bool


ToWorker = Prepare | Call | Result
FromWorker = Prepared | Traced | Returned | ResultWanted | Answered | Verified
Answer = Prepared | ResultWanted | Answered | Verified

_to_worker: Final = msgspec.msgpack.Decoder(ToWorker)
_from_worker: Final = msgspec.msgpack.Decoder(FromWorker)
_encoder: Final = msgspec.msgpack.Encoder()


def frame(message: ToWorker | FromWorker) -> bytes:
    """Return *message* as it goes over the socket."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def decode_for_worker(body: bytes) -> ToWorker:
    """Return what the runtime says; it is trusted."""
    return _to_worker.decode(body)


def trace_payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's payload as it can be sent; what has no plain form is shown as text."""
    plain = msgspec.to_builtins(dict(payload), enc_hook=repr, str_keys=True)
    size = len(_encoder.encode(plain))
    return plain if size <= TRACE_BYTES else {"left_out": f"{size:,} bytes; a record may have {TRACE_BYTES:,}"}


class FrameBroken(Exception):
    """What came is no frame, or a larger one than is allowed; the text says which."""


class Frames:
    """What a worker has sent so far, cut into messages."""

    __slots__ = ("_bytes_max", "_data")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[FromWorker]:
        """Yield the messages that are complete with *data*.

        Raises:
            FrameBroken: It is none, or too large; what follows cannot be read either.
        """
        self._data += data
        while len(self._data) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._data)
            if size > self._bytes_max:
                raise FrameBroken(f"a message of {size:,} bytes; at most {self._bytes_max:,} are read")
            if len(self._data) < LENGTH.size + size:
                return
            body = bytes(self._data[LENGTH.size : LENGTH.size + size])
            del self._data[: LENGTH.size + size]
            try:
                message = _from_worker.decode(body)
            except msgspec.MsgspecError as error:
                raise FrameBroken(f"a message that cannot be read: {error}"[:300]) from None
            yield message
