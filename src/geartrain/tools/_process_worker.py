"""One worker process, as the process that holds the store sees it: a warden, two sockets, one question at a time.

Rule 1: used on the event loop's thread, by callbacks alone. Nothing of a worker is waited for without a limit: one that
does not end when it is told to is ended with its warden.
Rule 2: how a worker ended is what its warden reports; the connection to the worker says only what the worker says.
Rule 3: what the worker has sent before it ended is read before its end is told.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from geartrain.limits import Limits
from geartrain.tools._clean import cleaned
from geartrain.tools._errors import ProcessesUnavailable, WorkerEnded
from geartrain.tools._process_frames import (
    TRACE_BYTES,
    Answer,
    Answered,
    Call,
    FrameBroken,
    Frames,
    FromWorker,
    Prepare,
    Prepared,
    Result,
    ResultWanted,
    Returned,
    Target,
    Traced,
    Verified,
    frame,
)

WARDEN: Final = Path(__file__).with_name("_process_warden.py")
# What is read in one turn of the loop: at most some hundred messages, whatever a tool traces.
READ_BYTES: Final = 16 * 1024
# After a whole read with trace records in it the next one waits so long: whoever traces without end waits for us, and
# the loop has time for everybody else.
PAUSE_SECONDS: Final = 0.01
REPORT_BYTES_MAX: Final = 64 * 1024
# Read at most so much at the end of a worker, whose children may go on sending.
LAST_BYTES_MAX: Final = 64 * 1024 * 1024
QUIT_SECONDS: Final = 1.0
# How long a warden has to end what is below it, before it is ended itself.
END_SECONDS: Final = 3.0
WORDS_MAX: Final = 500
_REPORT: Final = b"geartrain: "
_CLOSED: Final = "closed the connection to the runtime"


class Worker:
    """A worker process and its warden. `gone` is done once nothing of them runs any more."""

    def __init__(self, limits: Limits) -> None:
        """Start one.

        Raises:
            ProcessesUnavailable: The system does not let us.
        """
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.prepared: set[Target] = set()
        self.ending = False
        self._pid = 0
        self._number = 0
        self._asked: asyncio.Future[Answer] | None = None
        self._on_traced: Callable[[Traced], None] | None = None
        self._traced = False  # whether the last read had trace records in it
        self._on_returned: Callable[[], None] | None = None
        self._frames = Frames(limits.result_stored_bytes + limits.result_context_bytes + 2 * TRACE_BYTES)
        self._unsent = b""
        self._reports = bytearray()
        self._why = ""
        self._over: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._start()

    def _start(self) -> None:
        ours: list[socket.socket] = []
        theirs: list[socket.socket] = []
        try:
            for _ in range(2):
                our, their = socket.socketpair()
                ours.append(our)
                theirs.append(their)
            self._control, self._channel = ours
            self._process = subprocess.Popen(  # noqa: S603 - ours
                _command(theirs[1].fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=theirs[0].fileno(),
                pass_fds=[theirs[1].fileno()],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            for opened in ours:
                opened.close()
            raise ProcessesUnavailable(str(error)) from error
        finally:
            for opened in theirs:
                opened.close()
        for opened in ours:
            opened.setblocking(False)
        self._loop.add_reader(self._control, self._hear_warden)
        self._loop.add_reader(self._channel, self._hear_worker)

    # Asking

    def prepare(self, target: Target) -> asyncio.Future[Answer]:
        """Have it find a tool; the future is done with a `Prepared`, or raises `WorkerEnded`."""
        return self._ask(frame(Prepare(target)))

    def call(
        self, call: Call, *, on_traced: Callable[[Traced], None], on_returned: Callable[[], None]
    ) -> asyncio.Future[Answer]:
        """Have it run a call; the future is done with the answer, or raises `WorkerEnded`.

        *on_returned* is called before that, as soon as the function has returned.
        """
        self._number = call.number
        self._on_traced, self._on_returned = on_traced, on_returned
        limits = self._limits
        bounds = (limits.process_memory_bytes, limits.process_cpu_seconds, limits.process_children)
        self._tell_warden("begin {} {} {}\n".format(*bounds))
        return self._ask(frame(call))

    def go_on(self, result: Result) -> asyncio.Future[Answer]:
        """Give what the call has asked for in place of an answer; the future is done with its next one."""
        return self._ask(frame(result))

    def _ask(self, data: bytes) -> asyncio.Future[Answer]:
        assert self._asked is None, "one question at a time"
        asked = self._asked = self._loop.create_future()
        if self._over is not None or self.ending:
            self._asked = None
            asked.set_exception(WorkerEnded(self._over or "is being ended"))
        else:
            self._unsent = data
            self._send()
        return asked

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._channel.send(self._unsent) :]
            self._loop.remove_writer(self._channel)
        except BlockingIOError:
            self._loop.add_writer(self._channel, self._send)
        except OSError:  # it does not listen; its end, or its silence, is seen elsewhere
            self._unsent = b""
            self._loop.remove_writer(self._channel)

    # Ending

    def quit(self) -> None:
        """Let it leave as any program does, and end it with all it has started if that takes long."""
        self._end(f"quit {QUIT_SECONDS}\n", QUIT_SECONDS + END_SECONDS)

    def kill(self) -> None:
        """End it at once, with all it has started."""
        self._end("", END_SECONDS)

    def _end(self, command: str, seconds: float) -> None:
        self.ending = True
        if self.gone.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self.force)
        if command:
            self._tell_warden(command)
            _shut(self._channel)
        else:
            _shut(self._control, socket.SHUT_WR)

    def force(self) -> None:
        """End it and its warden without asking either: what it has started in sessions of its own may stay."""
        with suppress(OSError):
            self._process.kill()
        if self._pid and not self.gone.done():
            with suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)

    def _broken(self, why: str) -> None:
        """End it because of what it has done; the warden may have seen why better than we."""
        if not self.ending:
            self._why = why
            self._end("quit 0.2\n", END_SECONDS)

    # Hearing

    def _hear_worker(self) -> None:
        data = _received(self._channel)
        if data is None:
            return
        if not data:
            self._loop.remove_reader(self._channel)
            self._broken(_CLOSED)
            return
        self._traced = False
        self._take(data)
        if self._traced and len(data) == READ_BYTES and not self.ending:
            self._loop.remove_reader(self._channel)
            self._loop.call_later(PAUSE_SECONDS, self._hear_on)

    def _hear_on(self) -> None:
        if not self.ending:  # else what is left is read at its end
            self._loop.add_reader(self._channel, self._hear_worker)

    def _take(self, data: bytes) -> None:
        try:
            for message in self._frames.feed(data):
                self._said(message)
        except FrameBroken as broken:
            self._loop.remove_reader(self._channel)
            self._broken(f"has sent {broken}")

    def _said(self, message: FromWorker) -> None:
        asked = self._asked
        if asked is None or (not isinstance(message, Prepared) and message.number != self._number):
            return  # of an earlier call
        match message:
            case Traced() if self._on_traced is not None:
                self._traced = True
                self._on_traced(message)
            case Returned() if self._on_returned is not None:
                self._on_returned()
            case Prepared() | ResultWanted():
                self._answered(message)
            case Answered() | Verified():
                self._tell_warden("end\n")
                self._on_traced = self._on_returned = None
                self._answered(message)

    def _answered(self, answer: Answer | WorkerEnded) -> None:
        asked, self._asked = self._asked, None
        if asked is None or asked.done():
            return
        if isinstance(answer, WorkerEnded):
            asked.set_exception(answer)
        else:
            asked.set_result(answer)

    def _hear_warden(self) -> None:
        data = _received(self._control)
        if data is None:
            return
        if data:
            self._reports += data
            del self._reports[:-REPORT_BYTES_MAX]
            self._read_reports()
            return
        self._loop.remove_reader(self._control)
        self._lost()
        self._reap(0.001)

    def _read_reports(self) -> None:
        heard = bytes(self._reports)
        pid, complete, _ = heard.partition(_REPORT + b"pid ")[2].partition(b"\n")
        if complete:
            self._pid = int(pid)
        line, complete, tail = heard.partition(_REPORT + b"over ")[2].partition(b"\n")
        if complete and self._over is None:
            reason, status, size = line.split()
            if len(tail) >= int(size):
                self._ended(_how(reason.decode(), int(status), self._limits, self._why), tail)

    def _lost(self) -> None:
        """Note that the warden has left; if it has not said why, it was ended, and takes its worker with it."""
        if self._over is None:
            self.force()
            heard = bytes(self._reports)
            if self._pid:
                self._ended(self._why if self._why not in ("", _CLOSED) else "lost its warden", b"")
            else:
                self._ended("could not be started", heard)

    def _ended(self, how: str, tail: bytes) -> None:
        self._drain()
        words = cleaned(tail.decode("utf-8", "replace")).strip()[-WORDS_MAX:]
        self._over = f"{how}; it last wrote: {words}" if words else how
        self.ending = True
        if self._timer is None:
            self._timer = self._loop.call_later(END_SECONDS, self.force)
        self._answered(WorkerEnded(self._over))

    def _drain(self) -> None:
        """Take what the worker had sent before it ended."""
        left = LAST_BYTES_MAX
        while left > 0 and self._asked is not None and (data := _received(self._channel)):
            left -= len(data)
            self._take(data)
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)

    def _reap(self, seconds: float) -> None:
        """Take note of the warden's end, which follows at once when it has closed its connection."""
        if self._process.poll() is None:
            self._loop.call_later(seconds, self._reap, min(2 * seconds, 0.1))
            return
        if self._timer is not None:
            self._timer.cancel()
        self._control.close()
        self._channel.close()
        if not self.gone.done():
            self.gone.set_result(None)

    def _tell_warden(self, command: str) -> None:
        with suppress(OSError):  # it has ended, which is heard elsewhere
            self._control.send(command.encode())


def _command(channel: int) -> list[str]:
    if getattr(sys, "frozen", False):
        raise ValueError(f"{sys.executable} is a program that was frozen into one file, and no interpreter")
    # What `multiprocessing` gives to its own: the interpreter's options as they are here.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    path = [entry for entry in sys.path if isinstance(entry, str)]
    # -P: the folder of the script would hide modules of the standard library from it.
    return [sys.executable, *flags, "-P", str(WARDEN), str(channel), str(os.getpid()), *path]


def _received(source: socket.socket) -> bytes | None:
    """Return what is there, nothing at the end, None if nothing is there yet."""
    try:
        return source.recv(READ_BYTES)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


def _shut(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    # Not only closed: a copy of this process that somebody has forked holds it as well.
    with suppress(OSError):
        connection.shutdown(how)


def _how(reason: str, status: int, limits: Limits, why: str) -> str:
    """Return in words how a worker has ended."""
    if reason == "ended" and os.WIFEXITED(status):
        return f"exited with code {os.WEXITSTATUS(status)}"
    if reason == "ended" and os.WTERMSIG(status) == signal.SIGXCPU:
        reason = "cpu"
    words = {
        "memory": f"was ended: the call took more than {limits.process_memory_bytes:,} bytes of memory",
        "cpu": f"was ended: the call took more than {limits.process_cpu_seconds:g} s of processor time",
        "children": f"was ended: the call had more than {limits.process_children} processes of its own",
        "ended": f"was ended by signal {os.WTERMSIG(status)} ({_signal_name(os.WTERMSIG(status))})",
    }
    return words.get(reason) or why or "was ended"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "without a name"
