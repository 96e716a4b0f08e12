"""Whether a tool call is allowed: verdicts, the policy that gives them, and asking it safely.

A policy decides and does nothing; it is asked again whenever an approved call is about to run. One that raises, hangs
or answers nonsense counts as `Ask`, with its error shown to whoever decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from geartrain.machine import Call, Run, ToolSpec, Verdict
from geartrain.runtime._agent import Agent
from geartrain.runtime._edge import clean_text
from geartrain.tools import ArgumentsInvalid, Tool, being_cancelled, error_text

REASON_CHARACTERS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call must not run, whoever approves it."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A person decides."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class PolicyCall:
    """The call that a policy is asked about: its id, its tool's name and flags, and its checked arguments."""

    id: str
    tool: str
    arguments: Mapping[str, Any]
    read_only: bool
    idempotent: bool


@dataclass(frozen=True, slots=True)
class RunView:
    """What a policy may know of the run."""

    run_id: str
    agent: str
    turn_count: int
    tool_calls: int
    principal: str
    permissions: tuple[str, ...]
    labels: Mapping[str, str]
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Problem:
    text: str


Decision = Allow | Deny | Ask
Policy = Callable[[PolicyCall, RunView], Decision | Awaitable[Decision]]


def default_policy(call: PolicyCall, _run: RunView) -> Decision:
    """Allow read-only tools and ask a person about the rest."""
    return Allow("read-only") if call.read_only else Ask(f"{call.tool!r} changes something")


def _view(run: Run) -> RunView:
    return RunView(
        run_id=run.id,
        agent=run.agent,
        turn_count=run.turn_count,
        tool_calls=run.tool_calls,
        principal=run.principal,
        permissions=run.permissions,
        labels=dict(run.labels),
        context=copy.deepcopy(run.context) if run.context else {},
    )


def withdrawn_flags(recorded: ToolSpec | None, tool: Tool) -> tuple[str, ...]:
    """Return the safety flags that the recorded tool has and today's has not: the stricter one counts."""
    if recorded is None:
        return ()
    today = {"read_only": tool.read_only, "idempotent": tool.idempotent, "verify": tool.verify is not None}
    return tuple(flag for flag, has in today.items() if getattr(recorded, flag) and not has)


class PendingVerdicts:
    """The verdicts on some calls, some of which an asynchronous policy still owes."""

    __slots__ = ("_owed", "_verdicts")

    def __init__(self) -> None:
        self._verdicts: dict[str, Verdict] = {}
        self._owed: list[tuple[Call, tuple[str, ...], Awaitable[Any]]] = []

    @property
    def complete(self) -> bool:
        """Whether no policy has to be waited for."""
        return not self._owed

    def add(self, call: Call, answer: Any, withdrawn: tuple[str, ...]) -> None:
        """Take an answer, or an awaitable one, for *call*."""
        if inspect.isawaitable(answer):
            self._owed.append((call, withdrawn, answer))
        else:
            self._verdicts[call.id] = _verdict(call, answer, withdrawn)

    def refuse(self, call: Call, reason: str) -> None:
        """Note that *call* cannot be made at all."""
        self._verdicts[call.id] = Verdict(call_id=call.id, verdict="invalid", reason=reason)

    def verdicts(self) -> tuple[Verdict, ...]:
        """Return what is decided."""
        return tuple(self._verdicts.values())

    async def wait(self, timeout_seconds: float) -> tuple[Verdict, ...]:
        """Wait for the policies that are asynchronous, each at most *timeout_seconds*."""
        for call, withdrawn, owed in tuple(self._owed):
            cancellations = being_cancelled()
            answer: Any
            try:
                async with asyncio.timeout(timeout_seconds) as limit:
                    answer = await owed
            except asyncio.CancelledError as error:
                if being_cancelled() > cancellations:
                    raise
                answer = error  # its own: nobody has cancelled this task
            except BaseException as error:  # noqa: BLE001 - a stranger's code: a policy that fails counts as Ask
                answer = _Problem("the policy did not answer in time") if limit.expired() else error
            self._verdicts[call.id] = _verdict(call, answer, withdrawn)
        self._owed.clear()
        return self.verdicts()

    def waiting(self, timeout_seconds: float) -> Awaitable[tuple[Verdict, ...]]:
        """Return what `wait` does as something to await, which need not be awaited at all."""
        return _Waiting(self, timeout_seconds)

    def drop(self) -> None:
        """Let go of what is owed without waiting for it."""
        for _, _, owed in self._owed:
            if inspect.iscoroutine(owed) and not owed.cr_running:
                with contextlib.suppress(BaseException):  # a stranger's code, on its way out
                    owed.close()
        self._owed.clear()


@dataclass(frozen=True, slots=True)
class _Waiting:
    pending: PendingVerdicts
    timeout_seconds: float

    def __await__(self) -> Generator[Any, Any, tuple[Verdict, ...]]:
        return self.pending.wait(self.timeout_seconds).__await__()


def _verdict(call: Call, answer: Any, withdrawn: tuple[str, ...]) -> Verdict:
    reason = getattr(answer, "reason", "") if isinstance(answer, Allow | Deny | Ask) else ""
    if not isinstance(reason, str):
        answer, reason = _Problem(f"the policy gave a reason that is no text but {type(reason).__name__}"), ""
    reason = clean_text(reason[:REASON_CHARACTERS_MAX])
    match answer:
        case Allow():
            return Verdict(call_id=call.id, verdict="allow", reason=reason, withdrawn=withdrawn)
        case Deny():
            return Verdict(call_id=call.id, verdict="deny", reason=reason, withdrawn=withdrawn)
        case Ask():
            return Verdict(call_id=call.id, verdict="ask", reason=reason, withdrawn=withdrawn)
        case _Problem(problem):
            pass
        case BaseException():
            problem = f"the policy failed: {error_text(answer)}"
        case _:
            problem = f"the policy answered {type(answer).__name__}, not Allow, Deny or Ask"
    return Verdict(call_id=call.id, verdict="ask", error=clean_text(problem[:500]), withdrawn=withdrawn)


def ask_policy(
    policy: Policy, agent: Agent, run: Run, calls: tuple[Call, ...], recorded: Mapping[str, ToolSpec]
) -> PendingVerdicts:
    """Ask *policy* about *calls*, those with unusable arguments excepted: they fail without anybody being asked."""
    pending = PendingVerdicts()
    view = _view(run)
    for call in calls:
        tool = agent.tools.get(call.tool)
        if tool is None:
            pending.refuse(call, f"the tool {call.tool!r} is gone: this agent has it no more")
            continue
        try:
            arguments = tool.decode(call.arguments)
        except ArgumentsInvalid as invalid:
            pending.refuse(call, str(invalid))
            continue
        withdrawn = withdrawn_flags(recorded.get(call.tool), tool)
        asked = PolicyCall(
            id=call.id,
            tool=call.tool,
            arguments=arguments,
            read_only=call.read_only and "read_only" not in withdrawn,
            idempotent=call.idempotent and "idempotent" not in withdrawn,
        )
        try:
            answer: Any = policy(asked, view)
        except BaseException as error:  # noqa: BLE001 - a stranger's code: a policy that fails counts as Ask
            answer = error
        pending.add(call, answer, withdrawn)
    return pending


def ask_about(call_ids: tuple[str, ...], problem: str) -> tuple[Verdict, ...]:
    """Return verdicts that leave all of these calls to a person, because of *problem*."""
    return tuple(Verdict(call_id=call_id, verdict="ask", error=problem[:500]) for call_id in call_ids)
