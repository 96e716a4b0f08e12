"""A world for the machine to live in: it carries out what is outstanding, and keeps a ledger of what really happened.

Everything follows from one seed, so a failure is repeated by its seed alone. The world is valid (results answer
effects that were started, a person tells the truth), but as unkind as a valid world may be: results come late, twice
and out of order, processes die, clocks go backwards, people pause, cancel, approve and edit at any moment.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain.ids import digest as digest_of
from geartrain.limits import UNLIMITED
from geartrain.machine import (
    ENDED,
    EXTERNAL,
    HANDOFF_PREFIX,
    ActorRestarted,
    AgentSpec,
    ApprovalDecided,
    Budget,
    BudgetRaised,
    Call,
    CallAnswered,
    CallModel,
    CallSettled,
    CallStatus,
    CancelRequested,
    CompactContext,
    CompactionFailed,
    ContextCompacted,
    ContextFailed,
    ContextPrepared,
    ContextRules,
    EvaluatePermissions,
    Event,
    EventAwaited,
    EventHeard,
    EventPublished,
    GraceElapsed,
    HandedOff,
    HandoffFailed,
    HoldKind,
    InputReceived,
    Message,
    ModelFailed,
    ModelReplied,
    PauseRequested,
    PermissionsEvaluated,
    PrepareContext,
    Refusal,
    RequestedCall,
    ResultStatus,
    Run,
    RunCall,
    RunError,
    RunQuarantined,
    RunRecovered,
    RunResumed,
    RunStarted,
    RunState,
    ShareRaised,
    StartSubAgent,
    Step,
    StepLimits,
    SubAgentEnded,
    SubAgentSpec,
    TimerFired,
    ToolCalled,
    ToolFinished,
    ToolSpec,
    ToolStarted,
    TurnsReached,
    TurnTaken,
    Usage,
    Verdict,
    WriteInDoubt,
    alarms,
    outstanding,
    spec_digest,
    step,
    stuck,
    wake_at,
)
from geartrain.machine import ErrorKind as Kind
from geartrain.machine import ReasonCode as Code

TOOLS = (
    ToolSpec(name="look", read_only=True),
    ToolSpec(name="peek", read_only=True),
    ToolSpec(name="ask", kind="ask_user"),
    ToolSpec(name="write"),
    ToolSpec(name="put", idempotent=True),
    ToolSpec(name="post", verify=True),
    ToolSpec(name="patch", idempotent=True, verify=True),
    ToolSpec(name="fetch", read_only=True, external=True),
    ToolSpec(name="ship", external=True, timeout_seconds=60.0),
)
# What the tools of a plan are: one of the reads waits for an event.
PLANNED = tuple(
    ToolSpec(name="peek", kind="wait_for", read_only=True, external=True, timeout_seconds=60.0)
    if tool.name == "peek"
    else tool
    for tool in TOOLS
)
CHAOS = os.environ.get("HYPOTHESIS_PROFILE") == "chaos"
ARGUMENTS = ("{}", '{"a":1}', '{"b":"two"}', "{", "[]", "", "null")
TEXTS = ('{"text":"softer"}', '{"text":"other"}')
LOST = "lost"


def in_many_worlds(test: Callable[[int], None]) -> Callable[[], None]:
    """Run *test* with the seeds of many worlds."""
    bounded = settings(max_examples=20_000 if CHAOS else 120, deadline=None, print_blob=True)
    return bounded(given(seed=st.integers(min_value=0, max_value=2**40))(test))


def walk(seed: int, *, events: int = 120) -> Iterator[tuple[World, Moved]]:
    """Yield each event of the world of that seed with what came of it: first unkind, then kind until the run ends."""
    world = World(seed)
    yield world, world.start()
    for _ in range(events):
        event = world.some_event() if world.live() else None
        if event is not None:
            yield world, world.offer(event)
    for moved in world.settle_down():
        yield world, moved


@dataclass
class Ledger:
    """What really happened, kept by the world and not by the machine."""

    starts: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    permits: dict[str, int] = field(default_factory=dict)
    verdicts: dict[str, tuple[str, int]] = field(default_factory=dict)
    approvals: dict[str, str] = field(default_factory=dict)
    remembered: set[tuple[str, str]] = field(default_factory=set)
    epoch: int = 0


@dataclass(frozen=True)
class Moved:
    """One event offered to the machine and what came of it."""

    before: Run
    event: Event
    result: Step | Refusal
    after: Run


class World:
    """One run and everything around it."""

    def __init__(self, seed: int, *, spec: AgentSpec | None = None) -> None:
        self.random = random.Random(seed)
        self.spec = spec or _some_spec(self.random)
        self.other = AgentSpec(
            name="other",
            tools=TOOLS,
            providers=self.spec.providers,
            limits=self.spec.limits,
            context=self.spec.context,
            guarded=self.spec.guarded,
        )
        self.specs = {spec_digest(each): each for each in (self.spec, self.other)}
        self.run = Run(id=f"r-{seed}")
        self.now = 1_800_000_000.0
        self.count = 0
        self.effects: dict[str, Any] = {}
        self.started_writes: dict[str, str] = {}
        self.sent: list[Event] = []
        self.journal: list[tuple[Event, tuple[str, ...]]] = []
        self.ledger = Ledger()

    # -- moving

    def offer(self, event: Event) -> Moved:
        """Offer one event to the machine, and bring the effects in line with what is outstanding afterwards."""
        before = self.run
        result = step(before, event, self.specs)
        if isinstance(result, Step):
            self.run = result.run
            self.journal.append((event, tuple(map(str, result.path))))
            self._note(before, event)
            self._reconcile()
        return Moved(before, event, result, self.run)

    def id(self) -> str:
        self.count += 1
        return f"e{self.count}"

    def start(self) -> Moved:
        rng = self.random
        deadline = self.now + rng.choice((5.0, 400.0)) if rng.random() < 0.2 else None
        history = (Message(role="user", text="before"), Message(role="assistant", text="then"))
        return self.offer(
            RunStarted(
                id=self.id(),
                time=self.now,
                agent=self.spec.name,
                spec=spec_digest(self.spec),
                input=rng.choice(("go", "go " * 50)),
                budget=self.spec.budget,
                deadline=deadline,
                history=history if rng.random() < 0.2 else (),
            )
        )

    def _note(self, before: Run, event: Event) -> None:
        """Write into the ledger what the machine has taken to be so."""
        ledger = self.ledger
        match event:
            case PermissionsEvaluated():
                waiting = {c.id for c in before.calls if c.status in (CallStatus.PROPOSED, CallStatus.APPROVED)}
                for verdict in event.verdicts:
                    if verdict.call_id in waiting:
                        ledger.verdicts[verdict.call_id] = (verdict.verdict, ledger.epoch)
            case TimerFired(kind="dwell"):
                # A policy that twice gave no verdict counts as Ask.
                waited = {c.id for c in before.calls if c.status in (CallStatus.PROPOSED, CallStatus.APPROVED)}
                for judged in waited - {c.id for c in self.run.calls if c.status is CallStatus.PROPOSED}:
                    after = self.run.call(judged)  # None once a text that was approved is let through
                    if after is None or after.status is not CallStatus.APPROVED:
                        ledger.verdicts[judged] = ("ask", ledger.epoch)
            case ApprovalDecided(approved=True):
                call = before.call(event.call_id)
                assert call is not None
                digest = call.arguments_digest
                if event.arguments is not None:
                    digest = digest_of(event.arguments.encode())
                ledger.approvals[event.call_id] = digest
                if event.remember:
                    ledger.remembered.add((call.tool, digest))
            case CallSettled(done=False, not_done="run"):
                ledger.permits[event.call_id] = ledger.permits.get(event.call_id, 0) + 1
                ledger.approvals[event.call_id] = before.call(event.call_id).arguments_digest  # type: ignore[union-attr]
            case ToolFinished(verdict="not_done"):
                ledger.permits[event.call_id] = ledger.permits.get(event.call_id, 0) + 1
            case _:
                pass
        if before.state is RunState.SUSPENDED and self.run.state is not RunState.SUSPENDED:
            ledger.epoch += 1

    def _reconcile(self) -> None:
        wanted = {command.key: command for command in outstanding(self.run)}
        self.effects = {key: self.effects.get(key, command) for key, command in wanted.items()}

    # -- what the world does next

    def live(self) -> bool:
        return self.run.state not in ENDED

    def some_event(self) -> Event | None:
        """Return something that may happen now."""
        rng = self.random
        self.now += rng.choice((0.0, 0.001, 0.5, 3.0))
        roll = rng.random()
        if roll < 0.66:
            return self._some_result()
        if roll < 0.72:
            return self._late()
        if roll < 0.78:
            return self._some_alarm()
        return self._some_act()

    def _time(self) -> float:
        return self.now - (self.random.choice((1.0, 1000.0)) if self.random.random() < 0.05 else 0.0)

    def _late(self) -> Event | None:
        """Return the answer of an effect once more; only those that say which attempt they answer."""
        return self.random.choice(self.sent) if self.sent else None

    def _some_result(self) -> Event | None:
        commands = [c for c in self.effects.values() if not type(c).__name__.startswith("Announce")]
        if not commands:
            return self._cancelled_effect() or self._some_act()
        event = self._answer(self.random.choice(commands))
        if event is not None and not isinstance(
            event, (ContextPrepared, ContextFailed, ContextCompacted, CompactionFailed, HandedOff, HandoffFailed)
        ):
            self.sent.append(event)
        return event

    def _cancelled_effect(self) -> Event | None:
        """Return what comes of a read or sub-agent that an ending run has cancelled."""
        running = [c for c in self.run.calls if c.status is CallStatus.RUNNING and self.run.ending is not None]
        if not running:
            return None
        call = self.random.choice(running)
        if call.sub_agent:
            return SubAgentEnded(id=self.id(), time=self.now, call_id=call.id, run_id="child", state=RunState.CANCELLED)
        status = self.random.choice((ResultStatus.CANCELLED, ResultStatus.OK))
        return ToolFinished(
            id=self.id(), time=self.now, call_id=call.id, attempt=call.attempt, status=status, text="late"
        )

    def _answer(self, command: Any) -> Event | None:
        common: dict[str, Any] = {"id": f"{self.run.id}:{command.key}:{self.id()}", "time": self._time()}
        match command:
            case PrepareContext():
                return self._context(command, common)
            case CallModel():
                return self._model(command, common)
            case EvaluatePermissions():
                return self._verdicts(command, common)
            case RunCall():
                return self._tool(command, common)
            case StartSubAgent():
                return self._sub_agent(command, common)
            case CompactContext():
                return self._compaction(command, common)
        raise AssertionError(command)

    def _context(self, command: PrepareContext, common: dict[str, Any]) -> Event:
        rng = self.random
        if command.handoff_to:
            if rng.random() < 0.3:
                return HandoffFailed(**common, agent=command.handoff_to, message="no such agent")
            return HandedOff(**common, agent=command.handoff_to, spec=spec_digest(self.other))
        if rng.random() < 0.05:
            return ContextFailed(**common, provider="memory", message="is down")
        pinned = rng.random() < 0.3
        return ContextPrepared(**common, messages=(Message(role="user", text="fact", pinned=pinned, note=True),))

    def _usage(self) -> Usage | None:
        rng = self.random
        tokens = rng.choice((1, 20, 20, 20, 900))
        return rng.choice((None, Usage(input_tokens=tokens, output_tokens=5, cost=0.01), Usage(input_tokens=-4)))

    def _model(self, command: CallModel, common: dict[str, Any]) -> Event:
        rng = self.random
        common |= {"turn": command.turn, "attempt": command.attempt, "usage": self._usage()}
        roll = rng.random()
        if roll < 0.05:
            code = rng.choice(("model_failed", "context_too_long", "context_too_long"))
            return ModelFailed(**common, code=code, message="no")
        if roll < 0.12:
            return ModelReplied(**common, text=rng.choice(("", " ", "hm")), anomaly=rng.choice(("", "", "broken")))
        if roll < 0.25 or (not command.tools and roll < 0.8):
            return ModelReplied(**common, text="the answer")
        return ModelReplied(**common, text=rng.choice(("", "let me see")), calls=self.some_calls())

    def some_calls(self) -> tuple[RequestedCall, ...]:
        rng = self.random
        names = [tool.name for tool in TOOLS] * 2 + ["helper"] * 2 + ["no_such_tool", HANDOFF_PREFIX + "other"]
        count = rng.choice((1, 1, 2, 3, 5, 9))
        return tuple(
            RequestedCall(tool=rng.choice(names), arguments=rng.choice(ARGUMENTS[: 3 if rng.random() < 0.9 else 7]))
            for _ in range(count)
        )

    def _verdicts(self, command: EvaluatePermissions, common: dict[str, Any]) -> Event:
        rng = self.random
        asked = [c for c in command.call_ids if rng.random() < 0.9] or list(command.call_ids)
        texts = {call.id for call in self.run.calls if call.role != "tool"}
        kinds = ("allow", "allow", "allow", "allow", "ask", "ask", "deny" if rng.random() < 0.3 else "allow")
        withdrawn = ("read_only", "idempotent", "verify") if rng.random() < 0.05 else ()
        verdicts = tuple(
            Verdict(
                call_id=call_id,
                verdict="invalid" if rng.random() < 0.02 else rng.choice(kinds),  # type: ignore[arg-type]
                reason="because",
                rule=rng.choice(("", "rule 1")),
                withdrawn=withdrawn,
                arguments=rng.choice(TEXTS if call_id in texts else ARGUMENTS[:3]) if rng.random() < 0.05 else None,
            )
            for call_id in asked
        )
        return PermissionsEvaluated(**common, verdicts=verdicts, evaluation=command.evaluation)

    def _tool(self, command: RunCall, common: dict[str, Any]) -> Event | None:
        rng, ledger = self.random, self.ledger
        about: dict[str, Any] = {"call_id": command.call_id, "attempt": command.attempt}
        call = self.run.call(command.call_id)
        assert call is not None
        text = rng.choice(("", "fine", "long " * 40))
        if command.mode == "verify":
            if rng.random() < 0.2:
                return WriteInDoubt(**common, **about, reason="verify cannot tell")
            verdict = "done" if ledger.done.get(command.call_id) else "not_done"
            return ToolFinished(**common, **about, status=ResultStatus.OK, text=text, verdict=verdict)
        status = rng.choice(
            (ResultStatus.OK,) * 6 + (ResultStatus.ERROR, ResultStatus.TIMED_OUT, ResultStatus.CANCELLED)
        )
        if command.read_only:
            return ToolFinished(**common, **about, status=status, text=text)
        if call.status is CallStatus.RUNNING:
            if rng.random() < 0.05:
                return ToolFinished(**common, **about, status=ResultStatus.ERROR, text="cannot be started")
            return ToolStarted(**common, **about)
        if rng.random() < 0.2:
            if rng.random() < 0.5:
                ledger.done[command.call_id] = 1
            return WriteInDoubt(**common, **about, reason="the worker is gone")
        if status is not ResultStatus.ERROR:
            ledger.done[command.call_id] = 1
        return ToolFinished(**common, **about, status=status, text=text)

    def _sub_agent(self, command: StartSubAgent, common: dict[str, Any]) -> Event:
        rng = self.random
        state = rng.choice((RunState.FINISHED, RunState.FINISHED, RunState.FAILED, RunState.CANCELLED))
        error = RunError(code=Code.MODEL_FAILED, kind=Kind.MODEL, message="no") if state is RunState.FAILED else None
        return SubAgentEnded(
            **common,
            call_id=command.call_id,
            run_id="child",
            state=state,
            text="found",
            error=error,
            usage=Usage(input_tokens=3),
            turns=1,
            tool_calls=1,
        )

    def _compaction(self, command: CompactContext, common: dict[str, Any]) -> Event:
        rng = self.random
        if rng.random() < 0.3:
            return CompactionFailed(**common, message="no", usage=self._usage())
        summary = rng.choice(("", "short", "long " * 1000))
        replaced = rng.choice((command.messages, command.messages, command.messages - 1, 0, 99))
        return ContextCompacted(**common, summary=summary, replaced=replaced, usage=self._usage())

    def _some_alarm(self) -> Event | None:
        rng = self.random
        due = alarms(self.run, self.spec, self.now)
        if due:
            return due[0]
        until = wake_at(self.run, self.spec)
        if until is not None and until < self.now + 3600 and rng.random() < 0.4:
            self.now = until
            return alarms(self.run, self.spec, self.now)[0]
        if rng.random() < 0.2 and (found := stuck(self.run, self.now + 500, self.spec)) is not None:
            if found.cause != "no_progress":
                self.now += 500
            return TimerFired(id=self.id(), time=self.now, kind="dwell")
        return None

    def _some_act(self) -> Event | None:
        acts = list(self._acts())
        return self.random.choice(acts)() if acts else None

    def _acts(self) -> Iterator[Callable[[], Event]]:
        """Yield what people and the runtime may do now, likely things more often."""
        rng, run = self.random, self.run
        common: dict[str, Any] = {"id": self.id(), "time": self._time(), "by": "ops", "source": "test"}
        for call in run.calls:
            yield from self._acts_on(call, common)
        if run.holds:
            yield lambda: RunResumed(**common)
            yield lambda: BudgetRaised(**common, budget=_raised(run))
        yield lambda: InputReceived(**common, text=rng.choice(("and?", "more " * 30)), pinned=self.count % 3 == 0)
        if self.spec.plan and self.count % 5 == 0:
            other = {"run_id": "r-other", "call_id": f"t1.c{self.count}", "name": "n"}
            yield lambda: EventPublished(**common, **other, payload="p" * (self.count % 3))
            yield lambda: EventAwaited(**common, **other, after=self.count % 2)
        if rng.random() < 0.4:
            yield lambda: PauseRequested(**common)
            yield lambda: TurnTaken(
                **common, text=rng.choice(("", "I say so")), calls=rng.choice(((), self.some_calls()))
            )
            yield lambda: ActorRestarted(**common, reason="bug", restarts=run.restarts + 1, resume_at=self.now + 1)
            yield lambda: RunRecovered(**common, attempt=run.recoveries + rng.choice((1, 1, 1, 0, 2)))
        if rng.random() < 0.1:
            yield lambda: CancelRequested(**common, reason="enough")
            yield lambda: RunQuarantined(**common, reason="poison")
            yield lambda: BudgetRaised(**common, budget=_raised(run))

    def _acts_on(self, call: Call, common: dict[str, Any]) -> Iterator[Callable[[], Event]]:
        rng, about = self.random, {"call_id": call.id}
        if call.status is CallStatus.ASKED:
            edited = rng.choice((None, None, '{"edited":true}' if call.role == "tool" else '{"text":"edited"}', "{"))
            digest = rng.choice(("", call.arguments_digest, "other"))
            for approved in (True, True, True, False):
                yield lambda approved=approved: ApprovalDecided(  # type: ignore[misc]
                    **common,
                    **about,
                    approved=approved,
                    arguments=edited,
                    arguments_digest=digest,
                    remember=rng.choice(("", "run")),
                )
        if call.status is CallStatus.IN_DOUBT:
            done = bool(self.ledger.done.get(call.id))
            yield lambda: CallSettled(
                **common, **about, done=done, not_done="" if done else rng.choice(("run", "run", "skip", ""))
            )
        if call.share is not None and call.status is CallStatus.RUNNING:
            share = _changed_share(call.share, rng.choice((1, -1)))
            yield lambda: ShareRaised(**common, **about, budget=share)
        if call.event and call.status is CallStatus.RUNNING:
            heard = {"number": self.count % 3, "payload": "p", "refused": "full" if self.count % 4 == 0 else ""}
            yield lambda: EventHeard(**common, **about, name="n", **heard)
        if rng.random() < 0.1 or call.external:
            yield lambda: CallAnswered(
                **common, **about, text="mine", status=rng.choice((ResultStatus.OK, ResultStatus.ERROR))
            )

    def help(self, run: Run, now: float) -> Event:
        """Return what a patrol posts for a run that is stuck."""
        if run.ending is not None:
            return GraceElapsed(id="grace", time=now)
        return TimerFired(id="dwell", time=now, kind="dwell")

    def plain_answer(self, command: Any) -> Event:
        """Return the simplest answer to a command; nothing is noted."""
        common: dict[str, Any] = {"id": "plain", "time": self.now}
        match command:
            case PrepareContext(handoff_to=""):
                return ContextPrepared(**common)
            case PrepareContext():
                return HandedOff(**common, agent=command.handoff_to, spec=spec_digest(self.other))
            case CallModel():
                return ModelReplied(**common, turn=command.turn, attempt=command.attempt, text="done")
            case EvaluatePermissions():
                verdicts = tuple(Verdict(call_id=call_id, verdict="allow") for call_id in command.call_ids)
                return PermissionsEvaluated(**common, verdicts=verdicts, evaluation=command.evaluation)
            case StartSubAgent():
                return SubAgentEnded(**common, call_id=command.call_id, run_id="c", state=RunState.FINISHED)
            case CompactContext():
                return ContextCompacted(**common, summary="s", replaced=command.messages)
        call, about = self.run.call(command.call_id), {"call_id": command.call_id, "attempt": command.attempt}
        assert call is not None
        if call.status is CallStatus.RUNNING and call.barrier:
            return ToolStarted(**common, **about)
        return ToolFinished(**common, **about, status=ResultStatus.OK, text="", verdict="done")

    # -- a kind world

    def settle_down(self) -> Iterator[Moved]:
        """Be kind until the run ends: lift what holds it, answer what it asks."""
        for _ in range(400):
            if not self.live():
                return
            yield self.offer(self._kind_event())
        raise AssertionError(f"does not end: {self.run.state} {self.run.holds} {self.run.calls} {self.effects}")

    def _kind_event(self) -> Event:
        run = self.run
        common: dict[str, Any] = {"id": self.id(), "time": self.now}
        if run.ending is not None:
            self.now = max(self.now, run.ending.grace_until)
            return alarms(run, self.spec, self.now)[0]
        for hold in run.holds:
            about = {"call_id": hold.call_id}
            match hold.kind:
                case HoldKind.APPROVAL:
                    return ApprovalDecided(**common, **about, approved=True)
                case HoldKind.IN_DOUBT:
                    return CallSettled(**common, **about, done=True)
                case HoldKind.INPUT:
                    return InputReceived(**common, text="yes")
                case HoldKind.PAUSED | HoldKind.QUARANTINED:
                    return RunResumed(**common)
                case HoldKind.BUDGET:
                    return BudgetRaised(**common, budget=_raised(run))
        command = next(c for c in self.effects.values() if not type(c).__name__.startswith("Announce"))
        if isinstance(command, CallModel):
            return ModelReplied(**common, turn=command.turn, attempt=command.attempt, text="done")
        while (event := self._answer(command)) is None or isinstance(event, WriteInDoubt):
            pass
        return event


def _changed_share(share: Budget, by: int) -> Budget:
    values = {name: getattr(share, name) for name in Budget.__struct_fields__}
    changed = {name: value if value is UNLIMITED or value + by <= 0 else value + by for name, value in values.items()}
    return Budget(**changed)


def _raised(run: Run) -> Budget:
    more = {}
    for name in Budget.__struct_fields__:
        value = getattr(run.budget, name)
        more[name] = value if value is UNLIMITED else value * 2 + 10
    more["max_tool_failures"] = UNLIMITED
    return Budget(**more)


def _some_spec(rng: random.Random) -> AgentSpec:
    # Its draws leave the worlds of the rare seeds as they are.
    more = random.Random(rng.getstate()[1][0])
    trees = random.Random(rng.getstate()[1][1])  # the first number of the state is the same for every seed
    budget = Budget(
        max_turns=rng.choice((1, 2, 4, 20)),
        max_seconds=rng.choice((8.0, 300.0)),
        max_tool_failures=rng.choice((1, 3, 50)),
        max_tokens=rng.choice((200, 5_000, 80_000, UNLIMITED)),
        max_cost=rng.choice((0.05, UNLIMITED, UNLIMITED)),
        max_tool_calls=rng.choice((2, 10, UNLIMITED, UNLIMITED)),
    )
    consult = rng.choice(("all_results", "all_results", "each_result"))
    guarded: Any = rng.choice(((), ("input",), ("answer",), ("input", "answer"))) if consult == "all_results" else ()
    # Nor does this: only worlds with a plan are others than they would be without plans.
    plan = "p" if consult == "each_result" and random.Random(rng.getstate()[1][1]).random() < 0.5 else ""
    return AgentSpec(
        name="agent",
        instructions="Be good.",
        model=rng.choice(("scripted", "scripted", EXTERNAL)),
        tools=PLANNED if plan else TOOLS,
        sub_agents=(SubAgentSpec(name="helper"),),
        handoffs=("other",),
        providers=rng.choice(((), (), ("memory",))),
        budget=budget,
        stop_when=rng.choice((None, None, None, ToolCalled("ship"), TurnsReached(3) & ToolCalled("look"))),
        on_denied=rng.choice(("fail", "tell", "tell")),
        on_budget=rng.choice(("fail", "wrap_up", "suspend")),
        consult=consult,
        guarded=guarded,
        plan=plan,
        context=ContextRules(
            messages=rng.choice((6, 40, 200)),
            bytes=rng.choice((700, 4_000, 1_000_000)),
            result_bytes=rng.choice((60, 16_000)),
            summarise=rng.random() < 0.4,
            summarise_turns=rng.choice((1, 3)),
            summary_pause_turns=more.choice((0, 2)),
            shrink=more.random() < 0.5,
            shrink_turns=more.choice((1, 2)),
            shrink_bytes=more.choice((20, 100)),
        ),
        limits=StepLimits(
            calls_per_reply=rng.choice((4, 64)),
            open_calls=rng.choice((6, 1_000)),
            queued_inputs=3,
            write_attempts=rng.choice((1, 2, 3)),
            approval_expiry_seconds=rng.choice((5.0, 600_000.0)),
            external_seconds=rng.choice((None, 200.0, 600_000.0)),
            sub_agents_at_once=trees.choice((None, 1, 2, 50)),
        ),
        shares=trees.choice(("weights", "on_demand")),
    )
