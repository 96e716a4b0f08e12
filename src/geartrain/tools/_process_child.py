"""The worker's half: finds tools, runs them one at a time in its main thread, and says what came of it.

A stranger's code runs here, and may do anything. What this half does about that is for tools that mean well (limits
that end in an error instead of an end, a word that the function has returned); the other half relies on none of it.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import resource
import runpy
import socket
import sys
import threading
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from geartrain.machine import ResultStatus
from geartrain.tools import _loading
from geartrain.tools._clean import Outcome, cut, error_text
from geartrain.tools._context import ToolContext
from geartrain.tools._errors import ArgumentsInvalid, ResultUnavailable
from geartrain.tools._found import Done, NotDone, Unknown
from geartrain.tools._invoke import prepared, run_plain
from geartrain.tools._process_frames import (
    LENGTH,
    TRACE_NAME_MAX,
    Answered,
    Call,
    FromWorker,
    Prepare,
    Prepared,
    Result,
    ResultWanted,
    Returned,
    Target,
    ToWorker,
    Traced,
    Verified,
    decode_for_worker,
    frame,
    trace_payload,
)
from geartrain.tools._process_room import Room
from geartrain.tools._tool import Tool, tool
from geartrain.tools._verify import verify_here


def serve(channel: int) -> None:
    """Do what the runtime asks until it closes the connection; then leave as any program does."""
    _loading.in_a_worker = True
    # What it last wrote is worth having when it ends in the middle of something.
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    link = _Link(socket.socket(fileno=channel))
    tools = _Tools()
    while (message := link.received()) is not None:
        if isinstance(message, Prepare):
            link.send(Prepared(tools.problem(message.target)))
        elif isinstance(message, Call):
            link.send(_answer(message, tools, link))


class _Link:
    """The connection to the runtime, of this process only."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._pid = os.getpid()

    def received(self) -> ToWorker | None:
        head = self._exactly(LENGTH.size)
        return decode_for_worker(self._exactly(*LENGTH.unpack(head))) if head else None

    def send(self, message: FromWorker) -> None:
        if os.getpid() != self._pid:
            os._exit(0)  # a tool has forked, and its copy of us has come back from the tool
        with self._sending:
            self._channel.sendall(frame(message))

    def asked(self, question: ResultWanted) -> Result:
        """Ask the runtime, which says nothing of its own accord while a call is at work."""
        with self._asking:
            self.send(question)
            answer = self.received()
        if not isinstance(answer, Result):
            raise ResultUnavailable(question.call_id, "the connection to the runtime is closed")
        return answer

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._channel.recv(size - len(data))
            if not part:
                return b""
            data += part
        return bytes(data)


class _Tools:
    """The tools that were found."""

    def __init__(self) -> None:
        self._found: dict[Target, Tool] = {}

    def __getitem__(self, target: Target) -> Tool:
        return self._found[target]

    def problem(self, target: Target) -> str:
        """Find a tool, and return why it cannot be, or nothing."""
        _loading.loading = True
        try:
            self._found[target] = _tool_at(target)
        except BaseException as error:  # noqa: BLE001 - a stranger's module; whatever it raises, it cannot be used
            return error_text(error)
        finally:
            _loading.loading = False
        return ""


def _tool_at(target: Target) -> Tool:
    found = _at(target.place, target.main)
    if target.is_tool:
        if not isinstance(found, Tool):
            raise TypeError(f"{target.place} is a {type(found).__name__} here, not a tool")
        return found
    function = found.function if isinstance(found, Tool) else found
    verify = _at(target.verify, target.main) if target.verify else None
    present = _at(target.present, target.main) if target.present else None
    return tool(name=target.tool, isolation="process", verify=verify, present=present)(function)


def _at(place: str, main: str) -> Any:
    module, _, path = place.partition(":")
    value: Any = _main(main) if module == "__main__" else importlib.import_module(module)
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _main(main: str) -> types.ModuleType:
    """Load the program's main script as `multiprocessing` does: under a name that tells it not to run."""
    name = "__mp_main__"
    if name not in sys.modules:
        kind, _, where = main.partition(":")
        if kind == "module":
            names = runpy.run_module(where, run_name=name, alter_sys=True)
        else:
            names = runpy.run_path(where, run_name=name)
        module = types.ModuleType(name)
        module.__dict__.update(names)
        sys.modules["__main__"] = sys.modules[name] = module
    return sys.modules[name]


def _answer(call: Call, tools: _Tools, link: _Link) -> Answered | Verified:
    made = tools[call.target]
    context = ToolContext(
        run_id=call.run_id,
        call_id=call.call_id,
        idempotency_key=call.idempotency_key,
        attempt=call.attempt,
        deadline=call.deadline,
        context=call.context,
        principal=call.principal,
        emit=partial(_emit, link, call.number),
        read_result=partial(_read_result, link, call.number),
    )
    try:
        arguments = made.decode(call.arguments)
    except ArgumentsInvalid as invalid:  # the module has changed since the runtime was opened
        return _not_asked(call, str(invalid))
    room = Room(call.limits)
    if call.mode == "verify":
        with room.limited():
            found = verify_here(made, arguments, context, call.limits)
        return _verified(call.number, found, reusable=room.is_as_before())
    work = partial(_limited, room, prepared(made, arguments, context), inspect.iscoroutinefunction(made.function))
    outcome, may_retry = run_plain(made, work, call.limits, lambda: link.send(Returned(call.number)))
    return Answered(call.number, outcome, may_retry, room.is_as_before())


def _verified(number: int, found: Done | NotDone | Unknown, *, reusable: bool) -> Verified:
    match found:
        case Done(result):
            return Verified(number, "done", result, reusable)
        case NotDone():
            return Verified(number, "not_done", "", reusable)
        case Unknown(reason):
            return Verified(number, "unknown", reason, reusable)


def _limited(room: Room, call: Callable[[], Any], is_async: bool) -> Any:
    with room.limited():
        value = call()
        return asyncio.run(value) if is_async else value


def _not_asked(call: Call, reason: str) -> Answered | Verified:
    if call.mode == "verify":
        return Verified(call.number, "unknown", reason, reusable=True)
    outcome = Outcome(ResultStatus.NOT_STARTED, cut(reason, call.limits.result_context_bytes))
    return Answered(call.number, outcome, may_retry=False, reusable=True)


async def _read_result(link: _Link, number: int, call_id: str) -> str:
    result = link.asked(ResultWanted(number, call_id))
    if result.problem:
        raise ResultUnavailable(call_id, result.problem)
    return result.text


def _emit(link: _Link, number: int, name: str, payload: Mapping[str, Any]) -> None:
    link.send(Traced(number, str(name)[:TRACE_NAME_MAX], trace_payload(payload)))
