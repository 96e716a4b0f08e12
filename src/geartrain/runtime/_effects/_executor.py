"""Carrying out one effect: the port behind which models, tools, policies and providers run.

An executor is given a command and says what came of it. The live one calls the real thing; a recorded or blocked one
can stand in its place, so that a replay or a dry run starts nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from geartrain import faults
from geartrain.ids import digest
from geartrain.limits import Limits
from geartrain.machine import (
    Artifact,
    EvaluatePermissions,
    ResultStatus,
    RunCall,
    Verdict,
)
from geartrain.models import Emit, Model, ModelReply, ModelRequest
from geartrain.runtime._policy import RunView
from geartrain.runtime._providers import ContextProvider, Told
from geartrain.tools import (
    ArgumentsInvalid,
    Done,
    NotDone,
    Outcome,
    ProcessStatistics,
    ThreadPool,
    Tool,
    ToolContext,
    Unknown,
    inside_a_tool,
    invoke,
    present,
    verify,
)

if TYPE_CHECKING:
    from geartrain.tools import ProcessPool


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What came of a tool call. `doubt` says why the outcome of a write is not known; `full` is the whole output."""

    status: ResultStatus
    text: str
    size: int = 0
    artifact: Artifact | None = None
    full: bytes | None = None
    tries: int = 1
    doubt: str = ""
    not_done: bool = False

    @property
    def artifacts(self) -> Mapping[str, bytes]:
        """The artifact to be stored with the result, by its digest."""
        return {self.artifact.digest: self.full} if self.artifact is not None and self.full is not None else {}


class Executor(Protocol):
    """Who carries out effects. Called once per effect and attempt, within its time limit.

    One that holds what has to be let go has an `async def aclose(seconds)`, called once when its runtime closes: all
    effects have ended by then, and the store is still claimed. One with worker processes has `process_statistics()`.
    """

    async def call_model(self, model: Model, request: ModelRequest, emit: Emit) -> ModelReply:
        """Return the model's reply."""
        ...

    async def run_tool(
        self,
        tool: Tool,
        command: RunCall,
        context: ToolContext,
        began: Callable[[], None],
        over: Callable[[], None],
        *,
        returned: Callable[[], None],
    ) -> CallOutcome:
        """Run a tool, or ask it whether its write was done.

        *began* is called right before anything is done. If it was, then *over* is called when nothing of the tool's
        function runs any more, on the event loop, and even if this was cancelled and abandoned long ago: a write is
        neither verified nor run again before that. *returned* is called, on any thread, once the function has
        returned: from then on its effect has happened, whatever becomes of its result. None of them is awaited of a
        tool that is asked.
        """
        ...

    async def evaluate(
        self, command: EvaluatePermissions, policies: Awaitable[tuple[Verdict, ...]]
    ) -> tuple[Verdict, ...]:
        """Wait for the asynchronous policies that were asked about the command's calls."""
        ...

    async def ask_provider(self, provider: ContextProvider, view: RunView) -> Told:
        """Return what a context provider tells of a run."""
        ...


class LiveExecutor:
    """Calls the real models and tools."""

    __slots__ = ("_limits", "_processes", "_threads")

    def __init__(self, limits: Limits, threads: ThreadPool) -> None:
        self._limits = limits
        self._threads = threads
        self._processes: ProcessPool | None = None

    async def aclose(self, seconds: float) -> None:
        """End the worker processes, within about twice *seconds*."""
        if self._processes is not None:
            await self._processes.aclose(seconds)

    def process_statistics(self) -> ProcessStatistics | None:
        """Return how many worker processes there are and what they do; None if none was ever needed."""
        return None if self._processes is None else self._processes.statistics()

    def _processes_for(self, tool: Tool) -> ProcessPool | None:
        if self._processes is None and tool.isolation == "process":
            from geartrain.tools import ProcessPool  # noqa: PLC0415 - only programs with such tools load it

            self._processes = ProcessPool(self._limits)
        return self._processes

    async def call_model(self, model: Model, request: ModelRequest, emit: Emit) -> ModelReply:
        """Return the model's reply."""
        with inside_a_tool():  # a stranger's code as much as a tool is
            return await model.reply(request, emit)

    async def run_tool(
        self,
        tool: Tool,
        command: RunCall,
        context: ToolContext,
        began: Callable[[], None],
        over: Callable[[], None],
        *,
        returned: Callable[[], None],
    ) -> CallOutcome:
        """Run a tool, or ask it whether its write was done."""
        try:
            arguments = tool.decode(command.arguments)
        except ArgumentsInvalid as invalid:
            return CallOutcome(ResultStatus.ERROR, str(invalid))
        if command.mode == "verify":
            began()
            return self._verified(
                await verify(
                    tool,
                    arguments,
                    context,
                    limits=self._limits,
                    threads=self._threads,
                    processes=self._processes_for(tool),
                )
            )
        if not command.read_only:
            faults.reach("tool.write.before", f"{context.run_id}/{context.call_id}")
        limits, threads = self._limits, self._threads
        outcome = await invoke(
            tool,
            arguments,
            context,
            limits=limits,
            threads=threads,
            processes=self._processes_for(tool),
            began=began,
            over=over,
            returned=returned,
        )
        if not command.read_only:
            faults.reach("tool.write.after", f"{context.run_id}/{context.call_id}")
            if outcome.lost:
                return CallOutcome(ResultStatus.ERROR, "", doubt=outcome.lost)
        return _call_outcome(outcome)

    def _verified(self, found: Done | NotDone | Unknown) -> CallOutcome:
        match found:
            case Done(result):
                limits = self._limits
                shown = present(
                    result, context_bytes=limits.result_context_bytes, stored_bytes=limits.result_stored_bytes
                )
                return _call_outcome(shown)
            case NotDone():
                return CallOutcome(ResultStatus.OK, "", not_done=True)
            case Unknown(reason):
                return CallOutcome(ResultStatus.OK, "", doubt=f"verify could not tell: {reason}")

    async def evaluate(
        self, _command: EvaluatePermissions, policies: Awaitable[tuple[Verdict, ...]]
    ) -> tuple[Verdict, ...]:
        """Wait for the asynchronous policies that were asked about the command's calls."""
        with inside_a_tool():
            return await policies

    async def ask_provider(self, provider: ContextProvider, view: RunView) -> Told:
        """Return what a context provider tells of a run: a plain function on a thread, an async one here."""
        with inside_a_tool():
            asked = partial(provider, view)
            told: Any = asked() if inspect.iscoroutinefunction(provider) else await self._threads.submit(asked)
            found: Told = await told if inspect.isawaitable(told) else told
            return found


def _call_outcome(outcome: Outcome) -> CallOutcome:
    artifact = None
    if outcome.full is not None:
        artifact = Artifact(digest=digest(outcome.full), size=len(outcome.full), media_type=outcome.media_type)
    return CallOutcome(
        status=outcome.status,
        text=outcome.text,
        size=outcome.size,
        artifact=artifact,
        full=outcome.full,
        tries=outcome.tries,
    )
