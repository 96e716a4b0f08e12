"""One SQLite connection with its one thread: the only place that reaches into aiosqlite.

aiosqlite runs statements one by one in a thread, and a cancelled caller leaves its statement running and its
transaction open. So a unit of work is one function, run whole in that thread whatever happens to the caller. For
that aiosqlite has no public call, and none to say what a forgotten thread should do when the process ends; a test
fails if one of the private names used here vanishes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import aiosqlite

from geartrain.clock import thread_job

T = TypeVar("T")

# How long the loop may be held up by a thread that ends after a failure: it tells the loop when it is done, and
# if that is closed by then, the thread dies complaining.
END_SECONDS: Final = 1.0

Connect = Callable[[], sqlite3.Connection]


class ConnectionThread:
    """A connection that is used by its own thread only."""

    __slots__ = ("_closed", "_connection", "_raw")

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection: Final = connection
        self._closed = False
        self._raw: Final = connection._conn  # noqa: SLF001 - see above

    @classmethod
    async def open(cls, connect: Connect) -> ConnectionThread:
        """Start a thread and connect in it.

        If *connect* raises or the caller is cancelled, the connection is closed and the thread is gone.
        """
        made: list[sqlite3.Connection] = []

        def connecting() -> sqlite3.Connection:
            made.append(connect())
            return made[0]

        connection = aiosqlite.Connection(connecting, iter_chunk_size=64)
        # A daemon: a forgotten store must not keep the process from ending. A commit that the end of the
        # process cuts short is a crash, and from those SQLite recovers.
        connection._thread.daemon = True  # noqa: SLF001 - see above
        try:
            with thread_job():
                await connection
        except BaseException:
            connection._thread.join(END_SECONDS)  # noqa: SLF001 - see above
            for each in made:
                each.close()
            raise
        return cls(connection)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run *work* in the thread and return what it returns.

        Works run one at a time in the order of the calls. If the caller is cancelled the work is done all the same.
        """
        with thread_job():
            execute: Callable[..., Awaitable[T]] = self._connection._execute  # noqa: SLF001 - see above
            return await execute(work, self._raw)

    async def close(self) -> None:
        """Run what waits, close the connection and end the thread. Closing twice changes nothing.

        If the caller is cancelled, the thread goes through all that by itself.
        """
        if self._closed:
            return
        self._closed = True
        # Whatever closing says, the thread ends all the same, and an open transaction with it.
        with thread_job(), suppress(sqlite3.Error):
            await self._connection.close()

    def stop(self) -> None:
        """Do what `close` does where nobody may await anything, as after a cancellation."""
        if not self._closed:
            self._closed = True
            self._connection.stop()
        self._connection._thread.join(END_SECONDS)  # noqa: SLF001 - see above
