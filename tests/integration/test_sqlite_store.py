"""Who owns a store file, what a killed process leaves, and that the process ends."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from geartrain import faults
from geartrain.errors import UsageError
from geartrain.persistence import (
    OwnershipLost,
    StoreBusy,
    StoreReadOnly,
)
from geartrain.persistence.sqlite import SqliteJournal
from geartrain.persistence.sqlite._lock import FileUse
from geartrain.testing._journal_samples import (
    an_entry,
    epoch_of,
)

pytestmark = pytest.mark.real_time


PRELUDE = """
import asyncio, json, os, signal, sys
from geartrain import faults
from geartrain.errors import GeartrainError
from geartrain.persistence.sqlite import SqliteJournal
from geartrain.testing._journal_samples import *

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""


def start_program(text: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python process with *text* behind `PRELUDE`."""
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            PRELUDE + textwrap.dedent(text),
            *map(str, arguments),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_program(text: str, *arguments: object, seconds: float = 40) -> tuple[int, str, str]:
    """Run such a process to its end; return its exit code and what it said."""
    process = start_program(text, *arguments)
    said, complained = process.communicate(timeout=seconds)
    return process.returncode, said, complained


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[SqliteJournal]:
    journal = await SqliteJournal.open(path)
    yield journal
    await journal.aclose()


@pytest.fixture
def hook() -> Iterator[Callable[[faults.Hook], None]]:
    yield faults.install
    faults.install(None)


AS_NOBODY = """
    path = sys.argv[1]
    os.chmod(os.path.dirname(path) if sys.argv[2] == "folder" else path, 0o555 if sys.argv[2] == "folder" else 0o444)
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    async def main():
        try:
            await SqliteJournal.open(path)
        except GeartrainError as error:
            say(type(error).__name__, error)
        if sys.argv[2] == "file":
            reader = await SqliteJournal.open(path, read_only=True)
            say((await reader.statistics()).runs)
            await reader.aclose()
    asyncio.run(main())
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_or_folder_that_may_not_be_written_is_refused(what: str) -> None:
    # Not under pytest's own folder, which another user may not enter.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder) / "runs.db"
        asyncio.run(_make_store(path))
        before = path.read_bytes()

        code, said, complained = run_program(AS_NOBODY, path, what)
        Path(folder).chmod(0o777)

        assert (code, complained) == (0, "")
        lines = said.splitlines()
        assert lines[0].startswith("StoreUnusable")
        assert "may not be written by this user" in lines[0]
        assert lines[1:] == (["0"] if what == "file" else [])
        assert path.read_bytes() == before


async def _make_store(path: Path) -> None:
    await (await SqliteJournal.open(path)).aclose()


async def test_a_second_handle_of_the_same_process_is_refused_by_whatever_name(path: Path) -> None:
    first = await SqliteJournal.open(path)
    link = path.with_name("link.db")
    link.symlink_to(path)

    for name in (path, link, str(path.parent / "." / path.name)):
        with pytest.raises(StoreBusy) as refusal:
            await SqliteJournal.open(name)
        assert refusal.value.pid == os.getpid()

    await first.aclose()
    await (await SqliteJournal.open(link)).aclose()


HOLD = """
    async def main():
        journal = await SqliteJournal.open(sys.argv[1])
        claim = await journal.claim("holder", now=START, lease_seconds=1e9)
        say(os.getpid(), claim.epoch)
        for expected in range(10_000):
            await journal.append(an_entry("r", claim.epoch, expected))
            await asyncio.sleep(0.005)
    asyncio.run(main())
"""


async def test_a_second_process_is_refused_with_the_owners_pid_but_may_read(path: Path) -> None:
    """JR-7: two processes never move the same runs."""
    holder = start_program(HOLD, path)
    assert holder.stdout is not None
    pid, epoch = map(int, (await asyncio.to_thread(holder.stdout.readline)).split())
    try:
        with pytest.raises(StoreBusy) as refusal:
            await SqliteJournal.open(path)
        reader = await SqliteJournal.open(path, read_only=True)
        seen = [len(await reader.read("r")), *[len(await _read_later(reader)) for _ in range(2)]]
        with pytest.raises(UsageError):
            reader.append(an_entry("r", epoch))
        for method in (reader.claim("a", now=0, lease_seconds=1), reader.prune(before=0), reader.delete("r")):
            with pytest.raises(StoreReadOnly):
                await method
        await reader.aclose()
    finally:
        holder.kill()
        holder.communicate()

    assert refusal.value.pid == pid == holder.pid
    assert refusal.value.since is not None
    assert seen == sorted(seen)
    assert seen[0] < seen[-1]


async def _read_later(reader: SqliteJournal) -> Any:
    await asyncio.sleep(0.05)
    return await reader.read("r", limit=10_000)


async def test_the_claim_of_a_dead_process_is_void_at_once(path: Path) -> None:
    """Its lease may have a thousand years to go: the lock says that it is dead."""
    holder = start_program(HOLD, path)
    assert holder.stdout is not None
    _, epoch = map(int, (await asyncio.to_thread(holder.stdout.readline)).split())
    holder.kill()
    holder.communicate()

    journal = await SqliteJournal.open(path)
    with pytest.raises(OwnershipLost):
        await journal.append(an_entry("s", epoch))
    assert await epoch_of(journal) > epoch
    await journal.aclose()


HOLD_SILENTLY = """
    import fcntl
    file = open(sys.argv[1] + ".lock", "w")
    fcntl.lockf(file, fcntl.LOCK_EX)
    say("holding")
    sys.stdin.read()
"""


async def test_an_owner_that_does_not_say_who_it_is_is_respected_too(path: Path) -> None:
    holder = start_program(HOLD_SILENTLY, path)
    assert holder.stdout is not None
    await asyncio.to_thread(holder.stdout.readline)

    with pytest.raises(StoreBusy) as refusal:
        await SqliteJournal.open(path)
    holder.communicate("")

    assert (refusal.value.pid, refusal.value.since) == (None, None)
    await (await SqliteJournal.open(path)).aclose()


def test_a_use_that_was_given_up_cannot_be_locked_later(path: Path) -> None:
    """ST-4: an opening whose caller is gone leaves no lock behind."""
    use = FileUse(str(path))
    use.end()

    with pytest.raises(RuntimeError):
        use.lock(0.0)


RACE = """
    path, count = sys.argv[1], 16
    go_read, go_write = os.pipe()
    told_read, told_write = os.pipe()
    stay_read, stay_write = os.pipe()
    async def main():
        os.read(go_read, 1)
        try:
            journal = await SqliteJournal.open(path)
            epoch = (await journal.claim(str(os.getpid()), now=START, lease_seconds=30)).epoch
            await journal.append(an_entry("r", epoch))
            os.write(told_write, b"won\\n")
            os.read(stay_read, 1)
            await journal.aclose()
        except GeartrainError as error:
            os.write(told_write, f"{type(error).__name__}\\n".encode())
    for _ in range(count):
        if os.fork() == 0:
            os.close(stay_write)
            code = 1
            try:
                asyncio.run(main())
                code = 0
            finally:
                os._exit(code)
    os.write(go_write, b"x" * count)
    told = b""
    while told.count(b"\\n") < count:
        told += os.read(told_read, 1000)
    os.close(stay_write)
    codes = [os.wait()[1] for _ in range(count)]
    say(json.dumps([sorted(told.decode().split()), codes]))
"""


async def test_of_sixteen_processes_that_open_a_missing_file_one_wins(tmp_path: Path) -> None:
    """ST-13."""
    for number in range(5):
        path = tmp_path / f"{number}.db"

        code, said, complained = await asyncio.to_thread(run_program, RACE, path)

        assert (code, complained) == (0, "")
        assert json.loads(said) == [["StoreBusy"] * 15 + ["won"], [0] * 16]
        journal = await SqliteJournal.open(path)
        assert await _integrity(journal) == "ok"
        assert [event.seq for event in await journal.read("r")] == [1]
        await journal.aclose()


FORK = """
    async def main():
        journal = await SqliteJournal.open(sys.argv[1])
        epoch = await epoch_of(journal)
        await journal.append(an_entry("r", epoch))
        child = os.fork()
        if child == 0:
            for ask in (lambda: journal.append(an_entry("r", epoch, 1)), lambda: journal.load("r").send(None)):
                try:
                    ask()
                except GeartrainError as error:
                    say(type(error).__name__, "forked" in str(error))
            os._exit(0)
        os.waitpid(child, 0)
        child = os.fork()
        if child == 0:
            from geartrain.persistence.sqlite._lock import FileUse
            try:
                FileUse(sys.argv[1]).lock(0.0)
            except GeartrainError as error:
                say(type(error).__name__, error.pid == os.getppid())
            os._exit(0)
        os.waitpid(child, 0)
        say(await journal.append(an_entry("r", epoch, 1)))
        await journal.aclose()
    asyncio.run(main())
"""


def test_a_child_made_by_fork_refuses_the_inherited_handle(path: Path) -> None:
    """ST-13: and it cannot take the store from its parent, who goes on."""
    code, said, complained = run_program(FORK, path)

    assert (code, complained) == (0, "")
    assert said.splitlines() == ["StoreUnusable True", "StoreUnusable True", "StoreBusy True", "2"]


ENDINGS = {
    "never closed": "await SqliteJournal.open(path); raise SystemExit(3)",
    "closed twice": "j = await SqliteJournal.open(path); await j.aclose(); await j.aclose(); raise SystemExit(3)",
    "folder missing": "await SqliteJournal.open(path + '/no/x.db')",
    "hook raises at open": "faults.install(fail); await SqliteJournal.open(path)",
    "migration fails": "_file.MIGRATIONS = ('CREATE TABLE t (x); CREATE nonsense',); await SqliteJournal.open(path)",
    "reader fails": "_file.connect_reader = journal.connect_reader = fail; await SqliteJournal.open(path)",
    "open is cancelled": "await asyncio.wait_for(SqliteJournal.open(path), 0.0001)",
    "append fails": "j = await SqliteJournal.open(path); await j.append(an_entry('r', 7))",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_process_ends_whatever_fails(path: Path, ending: str) -> None:
    """ST-4."""
    program = """
        from geartrain.persistence.sqlite import _file, _journal as journal
        def fail(*_):
            raise RuntimeError("on purpose")
        async def main(path):
            BODY
        asyncio.run(main(sys.argv[1]))
    """

    code, _, complained = run_program(program.replace("BODY", ENDINGS[ending]), path, seconds=10)

    assert code == (3 if "SystemExit" in ENDINGS[ending] else 1), complained
    if "SystemExit" not in ENDINGS[ending]:
        assert "Traceback" in complained


async def test_a_failed_opening_leaves_nothing_behind(path: Path, hook: Callable[[faults.Hook | None], None]) -> None:
    """ST-4: neither a lock nor a thread, so that the next try succeeds."""

    def fail(name: str, subject: str) -> None:
        raise RuntimeError(name + subject)

    hook(fail)
    with pytest.raises(RuntimeError):
        await SqliteJournal.open(path)
    hook(None)

    await (await SqliteJournal.open(path)).aclose()


async def test_a_cancelled_opening_leaves_nothing_behind(path: Path) -> None:
    """ST-4: at whatever moment it is cancelled."""
    for turns in range(12):
        opening = asyncio.create_task(SqliteJournal.open(path))
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():
            await opening.result().aclose()

    journal = await SqliteJournal.open(path)
    assert await journal.append(an_entry("r", await epoch_of(journal))) == 1
    await journal.aclose()


NO_ROOM = """
    import resource
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async def main(path):
        journal = await SqliteJournal.open(path)
        epoch = await epoch_of(journal)
        number = 0
        async def fill():
            nonlocal number
            while True:
                events = (an_event(number + 1, body=b"x" * 5_000),)
                number = await journal.append(an_entry("r", epoch, number, events=events))
                say("stored", number)
                if number % 40 == 0:
                    return
        await fill()
        size = os.stat(path + "-wal").st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, -1))
        for _ in range(5):
            try:
                await fill()
            except GeartrainError as error:
                say("refused", type(error).__name__, (await journal.statistics()).failed)
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
        await fill()
        say("failed", (await journal.statistics()).failed)
        await journal.aclose()
    asyncio.run(main(sys.argv[1]))
"""


async def test_a_file_that_may_not_grow_loses_nothing_that_was_acknowledged(path: Path) -> None:
    code, said, complained = await asyncio.to_thread(run_program, NO_ROOM, path)

    lines = said.splitlines()
    assert (code, complained) == (0, "")
    assert lines.count("refused StoreFailed True") >= 3
    assert not [line for line in lines if "CommitUnknown" in line]
    assert lines[-1] == "failed False"
    stored = [int(line.split()[1]) for line in lines if line.startswith("stored")]
    journal = await SqliteJournal.open(path)
    assert [event.seq for event in await journal.read("r", limit=9_999)] == stored == [*range(1, len(stored) + 1)]
    await journal.aclose()


KILL = """
    async def main(path, point, nth):
        journal = await SqliteJournal.open(path)
        epoch = (await journal.claim("victim", now=START, lease_seconds=1e9)).epoch
        seen = 0
        def kill(name, subject):
            nonlocal seen
            seen += name == point
            if seen == nth:
                os.kill(os.getpid(), signal.SIGKILL)
        faults.install(kill)
        async def run(name):
            for expected in range(0, 1_000, 2):
                events = (an_event(expected + 1), an_event(expected + 2))
                last = await journal.append(an_entry(name, epoch, expected, events=events))
                say(name, last)
        await asyncio.gather(*map(run, "abcdefgh"))
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.parametrize("point", ["store.commit.before", "store.commit.after"])
@pytest.mark.parametrize("nth", [1, 2, 9, 30])
async def test_a_killed_process_loses_nothing_that_was_acknowledged(path: Path, point: str, nth: int) -> None:
    code, said, _ = await asyncio.to_thread(run_program, KILL, path, point, nth)
    ledger = dict.fromkeys("abcdefgh", 0)
    for line in said.splitlines():
        name, last = line.split()
        ledger[name] = int(last)

    journal = await SqliteJournal.open(path)
    stored = {name: [event.seq for event in await journal.read(name)] for name in ledger}
    epoch = await epoch_of(journal)

    assert code == -9
    assert await _integrity(journal) == "ok"
    for name, acknowledged in ledger.items():
        assert stored[name] == [*range(1, len(stored[name]) + 1)]
        # At most the batch in flight is there besides, and never half an entry of it.
        assert len(stored[name]) - acknowledged in ((0,) if point == "store.commit.before" else (0, 2))
        assert await journal.append(an_entry(name, epoch, len(stored[name]))) == len(stored[name]) + 1
    await journal.aclose()


async def _integrity(journal: SqliteJournal) -> str:
    assert journal._writer is not None
    found: str = await journal._writer.run(lambda writer: writer.execute("PRAGMA integrity_check").fetchone()[0])
    return found
