"""Tools and observers that misbehave, as data: put one beside your own agents and see that they do not notice.

A tool is made with the isolation that it needs: run like that, it harms nobody but its own run. Made with another one
(`isolation="task"`) it does what the table says: it blocks the event loop, or kills the process.

```python
from geartrain.testing.misbehaviour import BAD_TOOLS

bad = BAD_TOOLS["swallow_cancel_always"].agent()
async with Runtime.open("runs.db", agents=[mine, bad], policy=mine_too) as runtime:
    worse = await runtime.start(bad, "go")
    run = await runtime.start(mine, "…")
    await run.wait_ended()
    await worse.cancel()
```
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from geartrain.errors import InvalidValue
from geartrain.machine import RequestedCall
from geartrain.models import ScriptedModel
from geartrain.runtime import Agent
from geartrain.testing import _misbehave_apart as apart
from geartrain.testing import _misbehave_here as here
from geartrain.testing import _misbehave_watching as watching
from geartrain.tools import Isolation, Tool, tool
from geartrain.trace import Observer

__all__ = ["BAD_OBSERVERS", "BAD_TOOLS", "BadObserver", "BadTool", "Leaves", "Stops"]

Stops = Literal["itself", "at once", "late"]
Leaves = Literal["nothing", "a task", "a thread", "a process", "files", "the process changed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BadTool:
    """One thing that a tool must not do, and what it comes to.

    Args:
        function: What does it. Each of its parameters has a default.
        isolation: The one that it needs, to harm nobody but its own run.
        blocks_loop: As a task, it keeps the event loop from moving: for ever, or for as long as it says.
        kills_process: As a task or on a thread, it ends or stops the process that it is in.
        harms_others: It reaches for other processes than its own, and is made for worker processes only.
        leaves: What is still there when its call has its result, or is cancelled, if it ran as a task or on a thread.
            A worker process is ended with all that.
        stops: What a cancellation comes to, with the isolation that it needs: it ends by itself at once anyway; the
            cancellation ends its call within a second; or it goes on for longer than the default grace, so that it is
            abandoned.
    """

    function: Callable[..., Any]
    isolation: Isolation
    blocks_loop: bool = False
    kills_process: bool = False
    harms_others: bool = False
    leaves: Leaves = "nothing"
    stops: Stops = "itself"

    @property
    def name(self) -> str:
        """The name of its function."""
        return self.function.__name__

    @property
    def does(self) -> str:
        """What it does, in a sentence."""
        return (self.function.__doc__ or "").strip()

    def tool(
        self,
        *,
        name: str | None = None,
        isolation: Isolation | None = None,
        read_only: bool = True,
        timeout_seconds: float | None = None,
    ) -> Tool:
        """Return the tool, of the isolation that it needs if none is given.

        Raises:
            ToolDefinitionError: A coroutine cannot run on a thread.
            InvalidValue: It harms other processes than its own, unless a worker keeps it from them.
        """
        chosen = self.isolation if isolation is None else isolation
        if self.harms_others and chosen != "process":
            raise InvalidValue("isolation", f"'process' for {self.name}, which harms other processes", chosen)
        made = tool(name=name, isolation=chosen, read_only=read_only, timeout_seconds=timeout_seconds)
        return made(self.function)

    def agent(self, name: str | None = None, *, arguments: str = "{}", **options: Any) -> Agent:
        """Return an agent that calls the tool once and then answers "done"; *options* go to `tool`."""
        made = self.tool(**options)
        model = ScriptedModel([[RequestedCall(tool=made.name, arguments=arguments)], "done"])
        return Agent(self.name if name is None else name, model=model, tools=[made])


@dataclass(frozen=True, slots=True, kw_only=True)
class BadObserver:
    """One thing that an observer must not do. Give `observer` to `Runtime.open(observers=[…])`."""

    observer: Observer

    @property
    def name(self) -> str:
        """The name of its function."""
        return str(getattr(self.observer, "__name__", ""))

    @property
    def does(self) -> str:
        """What it does, in a sentence."""
        return (self.observer.__doc__ or "").strip()


_TASKS: Final = (
    BadTool(function=here.never_answer, isolation="task", stops="at once"),
    BadTool(function=here.swallow_cancel_once, isolation="task", stops="at once"),
    BadTool(function=here.swallow_cancel_and_answer, isolation="task", stops="at once"),
    BadTool(function=here.swallow_cancel_always, isolation="task", stops="late"),
    BadTool(function=here.clean_up_for_long, isolation="task", stops="late"),
    BadTool(function=here.raise_when_cancelled, isolation="task", stops="at once"),
    BadTool(function=here.cancel_itself, isolation="task"),
    BadTool(function=here.pretend_to_be_cancelled, isolation="task"),
    BadTool(function=here.leave_a_task, isolation="task", leaves="a task"),
    BadTool(function=here.wait_for_stubborn_tasks, isolation="task", leaves="a task", stops="at once"),
    BadTool(function=here.exit_in_a_task_of_its_own, isolation="task"),
    BadTool(function=here.raise_in_a_callback, isolation="task"),
    BadTool(function=here.mutate_the_arguments, isolation="task"),
    BadTool(function=here.return_the_same_object, isolation="task"),
    BadTool(function=here.trace_a_lot, isolation="task"),
)
# On a thread the call is given up at once; the thread itself goes on until the function returns.
_THREADS: Final = (
    BadTool(function=here.block_for_a_moment, isolation="thread", blocks_loop=True, leaves="a thread", stops="at once"),
    BadTool(function=here.block_for_seconds, isolation="thread", blocks_loop=True, leaves="a thread", stops="at once"),
    BadTool(function=here.block_for_long, isolation="thread", blocks_loop=True, leaves="a thread", stops="at once"),
    BadTool(function=apart.exit_politely, isolation="thread"),
    BadTool(function=apart.raise_what_cannot_be_shown, isolation="thread"),
)


def _apart(function: Callable[..., Any], **traits: Any) -> BadTool:
    return BadTool(function=function, isolation="process", **traits)


_PROCESSES: Final = (
    _apart(apart.spin, blocks_loop=True, leaves="a thread", stops="at once"),
    _apart(apart.spin_in_c, blocks_loop=True, leaves="a thread", stops="at once"),
    _apart(apart.spin_in_a_coroutine, stops="at once"),
    _apart(apart.deadlock, blocks_loop=True, leaves="a thread", stops="at once"),
    _apart(apart.hang_and_ignore_signals, blocks_loop=True, leaves="the process changed", stops="at once"),
    _apart(apart.stop_itself, kills_process=True, stops="at once"),
    _apart(apart.allocate_at_once),
    _apart(apart.allocate_until_killed, blocks_loop=True, kills_process=True, stops="at once"),
    _apart(apart.allocate_in_children, blocks_loop=True, leaves="a process", stops="at once"),
    _apart(apart.open_files_without_end, leaves="files"),
    _apart(apart.leave_files_open, leaves="files"),
    _apart(apart.start_processes_without_end, blocks_loop=True, leaves="a process", stops="at once"),
    _apart(apart.flood_the_output, blocks_loop=True, stops="at once"),
    _apart(apart.return_a_lot, blocks_loop=True, stops="at once"),
    _apart(apart.trace_without_end, blocks_loop=True, leaves="a thread", stops="at once"),
    _apart(apart.exit_at_once, kills_process=True),
    _apart(apart.exit_as_if_well, kills_process=True),
    _apart(apart.segmentation_fault, kills_process=True),
    _apart(apart.abort, kills_process=True),
    _apart(apart.kill_itself, kills_process=True),
    _apart(apart.terminate_its_group, harms_others=True, kills_process=True),
    _apart(apart.kill_its_warden, harms_others=True, blocks_loop=True, stops="at once"),
    _apart(apart.stop_its_warden, harms_others=True, blocks_loop=True, stops="at once"),
    _apart(apart.close_everything, kills_process=True),
    _apart(apart.send_garbage, blocks_loop=True, stops="at once"),
    _apart(apart.send_nonsense_frames, blocks_loop=True, stops="at once"),
    _apart(apart.ask_for_input, blocks_loop=True, stops="at once"),
    _apart(apart.connect_to_itself),
    _apart(apart.fork_and_return_twice, leaves="a process"),
    _apart(apart.become_a_daemon, kills_process=True, leaves="a process"),
    _apart(apart.leave_a_thread, leaves="a thread"),
    _apart(apart.leave_a_process, leaves="a process"),
    _apart(apart.leave_the_folder, leaves="the process changed"),
    _apart(apart.change_signal_handlers, leaves="the process changed"),
)

BAD_TOOLS: Final[Mapping[str, BadTool]] = MappingProxyType({bad.name: bad for bad in (*_TASKS, *_THREADS, *_PROCESSES)})
BAD_OBSERVERS: Final[Mapping[str, BadObserver]] = MappingProxyType(
    {
        each.name: each
        for each in (
            BadObserver(observer=watching.raise_each_time),
            BadObserver(observer=watching.exit_each_time),
            BadObserver(observer=watching.observe_for_ever),
            BadObserver(observer=watching.change_what_it_sees),
            BadObserver(observer=watching.keep_everything),
        )
    }
)
