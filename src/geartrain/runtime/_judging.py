"""Asking guardrails and the policy about calls, safely: whatever they do, there is one verdict for each call.

Rule 1: guardrails are asked in their order, then the policy; each sees what those before it have changed.
Rule 2: the strictest verdict wins: deny, then ask, then allow. After a denial nobody else is asked.
Rule 3: one that raises, hangs or answers nonsense counts as `Ask`, with its error shown to whoever decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import msgspec

from geartrain.errors import InvalidValue
from geartrain.limits import Limits
from geartrain.machine import Call, GuardVerdict, Run, ToolSpec, Verdict, guard_arguments, guard_text
from geartrain.runtime._agent import Agent
from geartrain.runtime._edge import checked_data, clean_text
from geartrain.runtime._policy import Allow, Ask, Change, Deny, Policy, PolicyCall, RunView, view_of
from geartrain.runtime._sub_agents import input_of, name_of
from geartrain.runtime._tasks import all_of
from geartrain.tools import ArgumentsInvalid, Tool, being_cancelled, error_text

REASON_CHARACTERS_MAX: Final = 2_000
_NAME_CHARACTERS_MAX: Final = 200
_PROBLEM_CHARACTERS_MAX: Final = 500
_SECONDS_MAX: Final = 1_000 * 365 * 86_400.0
_STRICTNESS: Final = {"allow": 0, "change": 0, "ask": 1, "deny": 2}

Kind = Literal["allow", "change", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class _Problem:
    text: str


@dataclass(frozen=True, slots=True)
class Judge:
    """Who is asked: a guardrail by its name, or the policy, which has none."""

    name: str
    function: Callable[..., Any]

    def __str__(self) -> str:
        return f"guardrail {self.name!r}" if self.name else "the policy"


def guardrails(functions: Sequence[Callable[..., Any]]) -> list[Judge]:
    """Return *functions* as judges, by their names."""
    return [Judge(_name_of(function), function) for function in functions]


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    return clean_text((name if isinstance(name, str) else type(function).__name__)[:_NAME_CHARACTERS_MAX])


class Subject(NamedTuple):
    """What a call is for those who judge it.

    `shown` makes what they are given out of its arguments, anew for each of them; `changed` returns the arguments that
    a `Change` asks for, checked, and raises if they do not fit.
    """

    shown: Callable[[str], Any]
    changed: Callable[[Any], str]


class _Said(NamedTuple):
    kind: Kind
    reason: str = ""
    rule: str = ""
    error: str = ""
    expires_seconds: float | None = None


class Case:
    """One call on its way through its guardrails to the policy. `owed` is the answer that has to be waited for."""

    __slots__ = ("_arguments", "_call", "_decided", "_guards", "_left", "_subject", "_view", "_withdrawn", "owed")

    def __init__(
        self, call: Call, subject: Subject, judges: Sequence[Judge], view: RunView, withdrawn: tuple[str, ...] = ()
    ) -> None:
        self._call = call
        self._subject = subject
        self._left = list(judges)
        self._view = view
        self._withdrawn = withdrawn
        self._arguments = proposed_arguments(call)
        self._guards: list[GuardVerdict] = []
        self._decided: tuple[Judge, _Said] | None = None
        self.owed: Awaitable[Any] | None = None
        self._go_on()

    def _go_on(self) -> None:
        while self._left and self.owed is None:
            judge = self._left[0]
            try:
                answer: Any = judge.function(self._subject.shown(self._arguments), self._view)
                owed = inspect.isawaitable(answer)
            except BaseException as error:  # noqa: BLE001 - a stranger's code: one that fails counts as Ask
                answer, owed = error, False
            if owed:
                self.owed = answer
            else:
                self._take(answer)

    def answered(self, answer: Any) -> None:
        """Take the answer that was owed."""
        self.owed = None
        self._take(answer)
        self._go_on()

    def _take(self, answer: Any) -> None:
        judge = self._left.pop(0)
        try:
            said = _said(judge, answer)
        except BaseException as error:  # noqa: BLE001 - a stranger's object: anything may happen when it is looked at
            said = _Said("ask", error=_problem(f"{judge} gave an answer that cannot be read: {error_text(error)}"))
        if said.kind == "change":
            said = self._change(judge, said, answer.to)
        if judge.name and said.kind != "allow":
            self._guards.append(GuardVerdict(guard=judge.name, verdict=said.kind, reason=said.reason, error=said.error))
        self._decide(judge, said)
        if said.kind == "deny":
            self._left.clear()

    def _change(self, judge: Judge, said: _Said, to: Any) -> _Said:
        """Take a change; one that means what is there already is none, so that an approval given still counts."""
        try:
            arguments = self._subject.changed(to)
            same = self._same(arguments, self._arguments)
        except BaseException as error:  # noqa: BLE001 - a stranger's objects: anything may happen when they are looked at
            return _Said("ask", error=_problem(f"{judge} wants a change that cannot be made: {error_text(error)}"))
        if same:
            return said._replace(kind="allow")
        self._arguments = arguments
        return said

    def _decide(self, judge: Judge, said: _Said) -> None:
        first, before = self._decided or (judge, said)
        level, highest = _STRICTNESS[said.kind], _STRICTNESS[before.kind]
        if self._decided is None or level > highest or level == highest == 0:
            self._decided = (judge, said)
        elif level == highest:
            # Whoever is asked is told all that speaks for asking.
            reason, error = _both(before.reason, said.reason), _both(before.error, said.error)
            expires = min((s for s in (before.expires_seconds, said.expires_seconds) if s is not None), default=None)
            self._decided = (first, before._replace(reason=reason, error=error, expires_seconds=expires))

    def verdict(self) -> Verdict:
        """Return what comes of it, once nothing is owed."""
        assert self._decided is not None, "the policy at least was asked"
        judge, said = self._decided
        return Verdict(
            call_id=self._call.id,
            verdict="allow" if said.kind == "change" else said.kind,
            reason=said.reason,
            rule=said.rule,
            withdrawn=self._withdrawn,
            error=said.error,
            arguments=None if self._unchanged() else self._arguments,
            guard=judge.name,
            guards=tuple(self._guards),
            expires_seconds=said.expires_seconds,
        )

    def _same(self, one: str, other: str) -> bool:
        """Whether both mean the same to those who judge; raises whatever looking at them raises."""
        return bool(self._subject.shown(one) == self._subject.shown(other))

    def _unchanged(self) -> bool:
        """Whether the call has these arguments already, so that an approval given still counts."""
        if self._arguments == self._call.arguments:
            return True
        try:
            return self._same(self._arguments, self._call.arguments)
        except BaseException:  # noqa: BLE001 - a stranger's objects: what cannot be compared is not the same
            return False


def proposed_arguments(call: Call) -> str:
    """Return the arguments that are judged: as the model or a person gave them, before any guardrail changed them.

    So a guardrail that adds a line adds it once, however often it is asked.
    """
    return call.arguments if call.proposed is None else call.proposed


def _both(one: str, other: str) -> str:
    return "; ".join(dict.fromkeys(text for text in (one, other) if text))[:REASON_CHARACTERS_MAX]


def _problem(text: str) -> str:
    return clean_text(text[:_PROBLEM_CHARACTERS_MAX])


def _said(judge: Judge, answer: Any) -> _Said:
    match answer:
        case Allow() | Deny() | Ask() | Change():
            words = {"reason": answer.reason, "rule": answer.rule}
            odd = next((name for name, word in words.items() if not isinstance(word, str)), None)
            if odd is not None:
                return _Said("ask", error=_problem(f"{judge} gave a {odd} that is no text but {_class(words[odd])}"))
            reason = clean_text(answer.reason[:REASON_CHARACTERS_MAX])
            rule = clean_text(answer.rule[:_NAME_CHARACTERS_MAX])
            seconds = answer.expires_seconds if isinstance(answer, Ask) else None
            if seconds is not None and not _is_time(seconds):
                return _Said("ask", error=_problem(f"{judge} gave a time to decide in that is no number of seconds"))
            return _Said(
                _KINDS[type(answer)], reason, rule, expires_seconds=seconds if seconds is None else float(seconds)
            )
        case _Problem(problem):
            return _Said("ask", error=_problem(f"{judge} {problem}"))
        case BaseException():
            return _Said("ask", error=_problem(f"{judge} failed: {error_text(answer)}"))
        case _:
            wanted = "Allow, Deny, Ask or Change"
            return _Said("ask", error=_problem(f"{judge} answered {_class(answer)}, not {wanted}"))


_KINDS: Final[Mapping[type[Any], Kind]] = {Allow: "allow", Deny: "deny", Ask: "ask", Change: "change"}


def _is_time(seconds: Any) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= _SECONDS_MAX


def _class(value: Any) -> str:
    return type(value).__name__


class PendingVerdicts:
    """The verdicts on some calls, some of which an asynchronous guardrail or policy still owes."""

    __slots__ = ("_cases", "_verdicts")

    def __init__(self) -> None:
        self._verdicts: dict[str, Verdict] = {}
        self._cases: list[Case] = []

    @property
    def complete(self) -> bool:
        """Whether nobody has to be waited for."""
        return all(case.owed is None for case in self._cases)

    def add(self, case: Case) -> None:
        """Take a case, decided or not."""
        self._cases.append(case)

    def refuse(self, call: Call, reason: str) -> None:
        """Note that *call* cannot be made at all."""
        self._verdicts[call.id] = Verdict(call_id=call.id, verdict="invalid", reason=reason)

    def verdicts(self) -> tuple[Verdict, ...]:
        """Return what is decided, once `complete`."""
        return (*self._verdicts.values(), *(case.verdict() for case in self._cases))

    async def wait(self, timeout_seconds: float, total_seconds: float) -> tuple[Verdict, ...]:
        """Wait for those that are asynchronous, each at most *timeout_seconds*, all at most *total_seconds*.

        Those of different calls are waited for at once: many calls do not use up each other's time.
        """
        until = asyncio.get_running_loop().time() + total_seconds
        await all_of([_closed(case, timeout_seconds, until) for case in self._cases if case.owed is not None])
        return self.verdicts()

    def waiting(self, timeout_seconds: float, total_seconds: float) -> Awaitable[tuple[Verdict, ...]]:
        """Return what `wait` does as something to await, which need not be awaited at all."""
        return _Waiting(self, timeout_seconds, total_seconds)

    def drop(self) -> None:
        """Let go of what is owed without waiting for it."""
        for case in self._cases:
            owed, case.owed = case.owed, None
            if inspect.iscoroutine(owed) and not owed.cr_running:
                with contextlib.suppress(BaseException):  # a stranger's code, on its way out
                    owed.close()
        self._cases.clear()


async def _closed(case: Case, timeout_seconds: float, until: float) -> None:
    """Wait for all that a case is owed, one after the other."""
    while case.owed is not None:
        left = until - asyncio.get_running_loop().time()
        case.answered(await _awaited(case.owed, max(0.0, min(timeout_seconds, left))))


async def _awaited(owed: Awaitable[Any], seconds: float) -> Any:
    """Return the answer, or what went wrong in its place."""
    cancellations = being_cancelled()
    try:
        async with asyncio.timeout(seconds) as limit:
            return await owed
    except asyncio.CancelledError as error:
        if being_cancelled() > cancellations:
            raise
        return error  # its own: nobody has cancelled this task
    except BaseException as error:  # noqa: BLE001 - a stranger's code: one that fails counts as Ask
        return _Problem("did not answer in time") if limit.expired() else error


@dataclass(frozen=True, slots=True)
class _Waiting:
    pending: PendingVerdicts
    timeout_seconds: float
    total_seconds: float

    def __await__(self) -> Generator[Any, Any, tuple[Verdict, ...]]:
        return self.pending.wait(self.timeout_seconds, self.total_seconds).__await__()


def withdrawn_flags(recorded: ToolSpec | None, tool: Tool) -> tuple[str, ...]:
    """Return the safety flags that the recorded tool has and today's has not: the stricter one counts."""
    if recorded is None:
        return ()
    today = {"read_only": tool.read_only, "idempotent": tool.idempotent, "verify": tool.verify is not None}
    return tuple(flag for flag, has in today.items() if getattr(recorded, flag) and not has)


def ask_policy(
    policy: Policy,
    agent: Agent,
    run: Run,
    calls: tuple[Call, ...],
    recorded: Mapping[str, ToolSpec],
    *,
    limits: Limits,
) -> PendingVerdicts:
    """Ask the agent's guardrails and *policy* about *calls*; about a text its own guardrails only.

    Calls with unusable arguments are excepted: they fail without anybody being asked.
    """
    pending = PendingVerdicts()
    view = view_of(run)
    judges = [*guardrails(agent.tool_guardrails), Judge("", policy)]
    for call in calls:
        if call.role != "tool":
            pending.add(Case(call, _text_subject(limits), _judges_of_text(agent, call), view))
            continue
        if call.sub_agent:
            _judge_sub_agent(pending, call, agent, judges, view)
            continue
        tool = agent.tools.get(call.tool)
        if tool is None:
            pending.refuse(call, f"the tool {call.tool!r} is gone: this agent has it no more")
            continue
        try:
            decoded = tool.decode(proposed_arguments(call))
        except ArgumentsInvalid as invalid:
            pending.refuse(call, str(invalid))
            continue
        withdrawn = withdrawn_flags(recorded.get(call.tool), tool)
        pending.add(Case(call, _tool_subject(call, tool, withdrawn, decoded, limits), judges, view, withdrawn))
    return pending


def _judge_sub_agent(
    pending: PendingVerdicts, call: Call, agent: Agent, judges: Sequence[Judge], view: RunView
) -> None:
    if call.tool not in map(name_of, agent.sub_agents):
        pending.refuse(call, f"the sub-agent {call.tool!r} is gone: this agent has it no more")
        return
    try:
        input_of(proposed_arguments(call))
    except InvalidValue as invalid:
        pending.refuse(call, str(invalid))
    else:
        pending.add(Case(call, _sub_agent_subject(call), judges, view))


def _sub_agent_subject(call: Call) -> Subject:
    def shown(arguments: str) -> PolicyCall:
        return PolicyCall(
            id=call.id,
            tool=call.tool,
            arguments={"input": input_of(arguments)},
            read_only=False,
            idempotent=False,
            sub_agent=True,
        )

    def changed(to: Any) -> str:
        text = dict(to).get("input") if isinstance(to, Mapping) and set(to) == {"input"} else to
        if not isinstance(text, str) or not text.strip():
            raise InvalidValue("the changed input of a sub-agent", "text, not blank", to)
        return msgspec.json.encode({"input": clean_text(text)}).decode()

    return Subject(shown, changed)


def _tool_subject(
    call: Call, tool: Tool, withdrawn: tuple[str, ...], decoded: dict[str, Any], limits: Limits
) -> Subject:
    # Whoever is asked first is asked about the proposed arguments, and gets them as they were just decoded.
    unread = [decoded]

    def shown(arguments: str) -> PolicyCall:
        return PolicyCall(
            id=call.id,
            tool=call.tool,
            arguments=unread.pop() if unread else tool.decode(arguments),
            read_only=call.read_only and "read_only" not in withdrawn,
            idempotent=call.idempotent and "idempotent" not in withdrawn,
        )

    def changed(to: Any) -> str:
        if not isinstance(to, Mapping):
            raise InvalidValue("changed arguments", "a mapping of names to values", type(to).__name__)
        data = checked_data("changed arguments", msgspec.to_builtins(dict(to)), limits)
        arguments = msgspec.json.encode(data).decode()
        if len(arguments) > limits.argument_bytes:
            raise InvalidValue("the size of changed arguments", f"at most {limits.argument_bytes}", len(arguments))
        tool.decode(arguments)
        return arguments

    return Subject(shown, changed)


def _judges_of_text(agent: Agent, call: Call) -> list[Judge]:
    found = agent.input_guardrails if call.role == "input" else agent.output_guardrails
    if found:
        return guardrails(found)
    # The recorded agent had some: what they would have caught, nobody looks for any more.
    gone = Ask(f"this agent has no guardrails for its {call.role} any more")
    return [Judge("", lambda _text, _run: gone)]


def _text_subject(limits: Limits) -> Subject:
    room = limits.event_bytes // 4

    def changed(to: Any) -> str:
        if not isinstance(to, str) or not to.strip() or len(to) > room:
            raise InvalidValue("a changed text", f"text of 1 to {room} characters, not blank", to)
        return guard_arguments(clean_text(to))

    return Subject(guard_text, changed)


def ask_about(call_ids: tuple[str, ...], problem: str) -> tuple[Verdict, ...]:
    """Return verdicts that leave all of these calls to a person, because of *problem*."""
    return tuple(Verdict(call_id=call_id, verdict="ask", error=problem[:500]) for call_id in call_ids)
