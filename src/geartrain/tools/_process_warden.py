"""The warden of one worker process: run as a script, it starts the worker and outlives it.

    the runtime's process ──► warden ──► worker ──► whatever the tool starts

Rule 1: whatever is below the warden ends with the worker. Both are subreapers, so a process that its parent has left
comes back to one of them, in whatever session it is: nothing escapes by `setsid` or by being forked twice.
Rule 2: the warden ends what is below it when it is told to, when its connection to the runtime is closed, and when the
runtime's process dies; the worker dies with the warden.
Rule 3: a stranger's code runs in the worker only. The warden reads what the worker prints, so that neither a full pipe
stops the worker nor a flood of text reaches the runtime, and keeps the end of it.
Rule 4: the worker is forked from this small process, never from the one that holds the store.

It is a script of the standard library alone, because starting it is what each new worker waits for. File descriptor 2
is the connection to the runtime, so that what the interpreter itself complains about at its start arrives there too.

Commands, one a line: `begin MEMORY CPU CHILDREN` watches what is below the warden until `end`; `quit SECONDS` gives
the worker so long to leave. Reports: `geartrain: pid N`, and at the worker's end `geartrain: over REASON STATUS SIZE`
followed by so many bytes of what it last wrote.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

LINUX = sys.platform == "linux"
CONNECTION = 2
OUTPUT_BYTES_MAX = 4096
TICK_SECONDS = 0.1
# The watch takes at most a tenth of a processor, however many processes it has to look at.
TICK_SHARE = 10
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def set_process_option(option: int, value: int) -> None:
    """Set one of the system's options for this process, where it has them."""
    if LINUX:
        import ctypes  # noqa: PLC0415 - not there on every system

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def start(channel: int) -> tuple[int, int]:
    """Fork the worker; return its process id and where its output is read, or 0 and -1 in the worker."""
    output, output_end = os.pipe()
    warden = os.getpid()
    pid = os.fork()
    if pid:
        os.close(output_end)
        os.close(channel)
        return pid, output
    os.setsid()
    set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
    set_process_option(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != warden:
        os._exit(1)
    os.dup2(output_end, 1)
    os.dup2(output_end, 2)
    os.close(output_end)
    os.close(output)
    return 0, -1


class Usage:
    """What the processes below the warden use: kilobytes in memory, seconds of processor time, how many they are."""

    def __init__(self) -> None:
        self.processes = processes_below(os.getpid())
        self.cpu = 0.0
        self.memory = 0
        for pid in self.processes:
            fields = status_fields(pid)
            if fields:
                self.cpu += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
                self.memory += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")

    def memory_shared_fairly(self) -> int:
        """Return the bytes in memory, counting what several of them share once: slow, so only asked when in doubt."""
        total = 0
        for pid in self.processes:
            rollup = read(f"/proc/{pid}/smaps_rollup")
            for line in rollup.splitlines():
                if line.startswith(b"Pss:"):
                    total += int(line.split()[1]) * 1024
        return total


def read(path: str) -> bytes:
    """Return what is in a file of /proc, or nothing if its process has ended."""
    try:
        with open(path, "rb", 0) as file:
            return file.read()
    except OSError:
        return b""


def status_fields(pid: int | str) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name, which may have any characters."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def processes_below(root: int) -> list[int]:
    """Return the ids of all processes that descend from *root*."""
    if not os.path.exists(f"/proc/{root}/task/{root}/children"):
        return scanned_below(root)
    found: list[int] = []
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            children = list(map(int, read(f"/proc/{pid}/task/{thread}/children").split()))
            found += children
            waiting += children
    return found


def scanned_below(root: int) -> list[int]:
    """Do the same where the system does not list children."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if LINUX else ():
        fields = status_fields(name) if name.isdigit() else []
        if fields:
            children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


class Warden:
    """One worker, from its start to the end of everything below it."""

    def __init__(self, worker: int, output: int, parent: int) -> None:
        self.worker = worker
        self.output = output
        self.parent = parent
        self.status: int | None = None  # of the worker, once it has ended
        self.written = bytearray()
        self.commands = b""
        self.before: Usage | None = None  # the use at the beginning of the call
        self.memory_max = self.cpu_max = self.children_max = 0.0
        self.tick_at: float | None = None
        self.quit_at: float | None = None
        self.reason = "ended"
        self.wanted = True

    def report(self, text: str, tail: bytes = b"") -> None:
        """Tell the runtime."""
        data = f"geartrain: {text}\n".encode() + tail
        try:
            while data:
                data = data[os.write(CONNECTION, data) :]
        except OSError:  # nobody listens any more
            self.wanted = False

    def watch(self) -> None:
        """Serve until the worker has ended or has to."""
        wakes, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)  # sent by the system when the runtime's process dies
        poll = select.poll()
        for source in (wakes, CONNECTION, self.output):
            poll.register(source, select.POLLIN)
        while self.wanted and self.status is None:
            self.reap()
            self.look()
            if not self.wanted or self.status is not None:
                break
            times = [at for at in (self.tick_at, self.quit_at) if at is not None]
            left = max(0.0, min(times) - time.monotonic()) * 1000 if times else None
            for source, _ in poll.poll(left):
                data = os.read(source, 65536)
                if source == CONNECTION:
                    self.told(data)
                elif source == self.output:
                    self.wrote(data)
                    if not data:
                        poll.unregister(source)

    def wrote(self, data: bytes) -> None:
        """Keep the end of what the worker has written."""
        self.written += data
        del self.written[:-OUTPUT_BYTES_MAX]

    def told(self, data: bytes) -> None:
        """Do what the runtime says; that it is gone says the same as being told to end."""
        if not data:
            self.reason, self.wanted = "killed", False
            return
        *lines, self.commands = (self.commands + data).split(b"\n")
        for line in lines:
            word, *numbers = line.split()
            if word == b"begin":
                self.written.clear()
                self.memory_max, self.cpu_max, self.children_max = map(float, numbers)
                self.before, self.tick_at = Usage(), time.monotonic() + TICK_SECONDS
            elif word == b"end":
                self.before = self.tick_at = None
            elif word == b"quit":
                self.quit_at = time.monotonic() + float(numbers[0])

    def look(self) -> None:
        """See whether the runtime's process is there, and whether a call uses more than it may."""
        if os.getppid() != self.parent:
            self.reason, self.wanted = "killed", False
            return
        now = time.monotonic()
        if self.quit_at is not None and now >= self.quit_at:
            self.reason, self.wanted = "quit", False
        if self.before is not None and self.tick_at is not None and now >= self.tick_at:
            self.measure(self.before)
            took = time.monotonic() - now
            self.tick_at = time.monotonic() + max(TICK_SECONDS, took * TICK_SHARE)

    def measure(self, before: Usage) -> None:
        """Compare what is used now with the beginning of the call."""
        use = Usage()
        if len(use.processes) - len(before.processes) > self.children_max:
            self.reason, self.wanted = "children", False
        elif use.cpu - before.cpu > self.cpu_max:
            self.reason, self.wanted = "cpu", False
        elif (
            use.memory - before.memory > self.memory_max
            and use.memory_shared_fairly() - before.memory > self.memory_max
        ):
            self.reason, self.wanted = "memory", False

    def reap(self) -> bool:
        """Take note of what has ended; return whether anything is left below the warden."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self.worker:
                self.status = status

    def end(self) -> None:
        """End everything below the warden, and report the worker's end as soon as it is known."""
        reported = False
        while True:
            left = self.reap()
            if self.status is not None and not reported:
                reported = True
                os.set_blocking(self.output, False)
                self.drain()
                tail = bytes(self.written)
                self.report(f"over {self.reason} {self.status} {len(tail)}", tail)
            if not left:
                return
            if self.status is None:
                kill(-self.worker)
            for pid in processes_below(os.getpid()):
                kill(pid)
            select.select([], [], [], 0.002)

    def drain(self) -> None:
        """Read what is left of the output."""
        try:
            for _ in range(16):  # what holds the other end may go on writing
                data = os.read(self.output, 65536)
                if not data:
                    return
                self.wrote(data)
        except BlockingIOError:
            return


def kill(pid: int) -> None:
    """End a process, or with a negative number a group of them."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:  # it has ended meanwhile
        return


def main() -> int:
    """Be the warden; what returns is the worker, with its end of the channel."""
    channel, parent = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(channel, False)  # to what the worker starts
    set_process_option(PR_SET_PDEATHSIG, signal.SIGTERM)
    set_process_option(PR_SET_CHILD_SUBREAPER, 1)
    worker, output = start(channel)
    if not worker:
        return channel
    warden = Warden(worker, output, parent)
    warden.report(f"pid {worker}")
    try:
        warden.watch()
    finally:
        warden.end()
    os._exit(0)


if __name__ == "__main__":
    connection = main()
    sys.path[:] = sys.argv[3:]
    del sys.argv[1:]
    from geartrain.tools._process_child import serve

    serve(connection)
