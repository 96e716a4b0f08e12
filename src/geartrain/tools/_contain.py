"""Keeping a tool's `SystemExit` and `KeyboardInterrupt` away from the event loop.

asyncio lets these two out of `run_forever` when any task raises them, so a tool that calls `sys.exit()` would end the
whole service. In the tool's own task `invoke` catches them. In a task that the tool starts, nobody of ours is on the
stack; so tasks started from inside a tool get their coroutine wrapped, by a task factory that leaves all other
tasks alone and passes everything on to the factory that was there before. A `GeneratorExit` gets the same: thrown into
whoever awaits the task, it would close that coroutine instead of being raised in it.

A real Ctrl-C is something else: `asyncio.run` (and `anyio.run`) answer SIGINT by cancelling the main task, and raise
`KeyboardInterrupt` from there. It does not pass through a tool, as long as such a runner has the signal. Where nobody
has installed a handler, Python raises it in whatever code the main thread is running; if that is a tool's, it ends
that call only, and a second Ctrl-C is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from typing import Any
from weakref import WeakSet

from geartrain.tools._errors import ToolExited

_inside_a_tool: ContextVar[bool] = ContextVar("_inside_a_tool", default=False)


class StartedTasks:
    """The tasks that a stranger's code has started in one context, as far as they still run.

    They are its own affair: a client that is made in one call and used by all keeps a task of its own going. So nobody
    ends them; but who gives a call up can say what still runs of it.
    """

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: WeakSet[asyncio.Task[Any]] | None = None

    def bind(self, context: Context) -> None:
        """Have the tasks noted here that are started, inside a tool, in *context* and its copies."""
        context.run(_started_tasks.set, self)

    def note(self, task: asyncio.Task[Any]) -> None:
        """Note one."""
        if self._tasks is None:
            self._tasks = WeakSet()
        with suppress(TypeError):  # made by somebody else's factory, and of a kind that cannot be referred to weakly
            self._tasks.add(task)

    def alive(self) -> list[asyncio.Task[Any]]:
        """Return those that are not done."""
        return [task for task in self._tasks or () if not task.done()]


_started_tasks: ContextVar[StartedTasks | None] = ContextVar("_started_tasks", default=None)


@contextmanager
def inside_a_tool() -> Iterator[None]:
    """Mark what runs in here, and every task started by it, as a tool's."""
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _ContainingFactory):
        loop.set_task_factory(_ContainingFactory(factory))
    token = _inside_a_tool.set(True)
    try:
        yield
    finally:
        _inside_a_tool.reset(token)


class _ContainingFactory:
    __slots__ = ("_before",)

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        inside = _inside_a_tool.get()
        if inside:
            coro = _Contained(coro)
        if self._before is None:
            task: Any = asyncio.Task(coro, loop=loop, **options)
        else:
            task = self._before(loop, coro, **options)
        if inside and (started := _started_tasks.get()) is not None:
            started.note(task)
        return task


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine of which the two errors that end a loop come out as an ordinary one.

    No `async def` around it: a task cancelled before its first step would leave the inner coroutine unawaited.
    """

    def __init__(self, coro: Any) -> None:
        self._coro = coro
        self.__name__ = getattr(coro, "__name__", type(coro).__name__)
        self.__qualname__ = getattr(coro, "__qualname__", self.__name__)

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError("only a task drives it")

    def send(self, value: Any) -> Any:
        try:
            return self._coro.send(value)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            raise ToolExited(type(error).__name__) from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._coro.throw(*error)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error_out:
            raise ToolExited(type(error_out).__name__) from error_out

    def close(self) -> None:
        self._coro.close()
