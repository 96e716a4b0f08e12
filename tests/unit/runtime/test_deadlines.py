"""A deadline is kept wherever a run is, across restarts, clocks that jump and stores that fail."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final

import pytest
from runtime_world import Gated, Ledger, Store, allow_all, calling, results_of, settle

from geartrain import clock
from geartrain.clock import LoopClock
from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import EXTERNAL, Budget
from geartrain.models import ModelUnavailable
from geartrain.models._scripted import Delay, ScriptedModel
from geartrain.persistence import StoreFailed
from geartrain.runtime import Agent, Allow, Ask, RunHandle, Runtime
from geartrain.runtime._timer import PATROL_SECONDS, Timer
from geartrain.tools import tool

LONG: Final = 10_000.0
PATIENT: Final = Limits(
    model_call_seconds=LONG, tool_call_seconds=LONG, policy_seconds=LONG, context_provider_seconds=LONG
)
DEADLINE: Final = 20.0
OPEN: Final = Budget(max_seconds=UNLIMITED)


async def slow_provider(_view: Any) -> str:
    await asyncio.sleep(LONG)
    return "fact"


async def slow_policy(_call: Any, _run: Any) -> Allow:
    await asyncio.sleep(LONG)
    return Allow()


@tool(read_only=True)
async def hold_place() -> str:
    """Hold the only place of the pool."""
    await asyncio.sleep(LONG)
    return "done"


def busy(_request: Any) -> Any:
    return ModelUnavailable("scripted", "busy", retry_after_seconds=100.0)


def ask(_call: Any, _run: Any) -> Ask:
    return Ask()


READ: Final = [calling("read")]
# Where a run is when its deadline comes: its first turn, and what else leads there.
PLACES: Final[dict[str, dict[str, Any]]] = {
    "model": {"turn": Delay(LONG, "late")},
    "model, external": {"model": EXTERNAL},
    "model, in back-off": {"turn": busy},
    "model, in the queue": {"turn": Delay(LONG, "late"), "before": True, "limits": {"model_calls_at_once": 1}},
    "read": {"turn": READ},
    "read, in the queue": {
        "turn": lambda request: [calling("hold_place" if "first" in request.messages[-1].text else "read")],
        "before": True,
        "limits": {"task_calls_at_once": 1},
    },
    "write": {"turn": [calling("write")]},
    "provider": {"turn": "late", "options": {"context": [slow_provider]}},
    "policy": {"turn": READ, "policy": slow_policy},
    "approval": {"turn": [calling("write")], "policy": ask},
    "pause": {"turn": READ, "act": lambda run: run.pause()},
    "budget": {"turn": READ, "options": {"budget": Budget(max_tokens=1), "on_budget": "suspend"}},
}
AWAY: Final = ("no", "closed over it", "closed over it, recovers none", "killed before it", "killed, recovers none")


def agent_at(place: str) -> Agent:
    about, ledger = PLACES[place], Ledger()
    tools = [ledger.read(LONG, timeout_seconds=LONG), ledger.write(LONG, timeout_seconds=LONG), hold_place]
    options = {"budget": OPEN, **about.get("options", {})}
    model = about.get("model") or ScriptedModel([about["turn"], "done"])
    return Agent("worker", model=model, tools=tools, **options)


def limits_at(place: str) -> Limits:
    fields = {name: getattr(PATIENT, name) for name in PATIENT.__struct_fields__}
    return Limits(**{**fields, **PLACES[place].get("limits", {})})


async def come_to(place: str, runtime: Runtime) -> RunHandle:
    about = PLACES[place]
    if "before" in about:
        await runtime.start("worker", "first")
    deadline = datetime.fromtimestamp(LoopClock().now(), UTC) + timedelta(seconds=DEADLINE)
    run = await runtime.start("worker", "go", deadline=deadline)
    if "act" in about:
        await about["act"](run)
    await asyncio.sleep(DEADLINE / 2)
    return run


@pytest.mark.parametrize("away", AWAY)
@pytest.mark.parametrize("place", PLACES)
async def test_a_deadline_is_kept_within_a_second_wherever_the_run_is(memory: Store, place: str, away: str) -> None:
    agent, policy, limits = agent_at(place), PLACES[place].get("policy", allow_all), limits_at(place)
    recover: Any = "none" if "none" in away else "all"
    began = LoopClock().now()
    async with memory.runtime(agent, policy=policy, limits=limits) as runtime:
        run = await come_to(place, runtime)
        if away == "no":
            await kept(run, runtime, began + DEADLINE, place=place)
            return
        if "killed" in away:
            memory.journal = memory.journal.as_killed()
    if "over it" in away:
        await asyncio.sleep(DEADLINE)
    opened = LoopClock().now()
    async with memory.runtime(agent, policy=policy, limits=limits, recover=recover) as runtime:
        run = await runtime.get(run.id)
        await kept(run, runtime, max(opened, began + DEADLINE), place=place)


async def kept(run: RunHandle, runtime: Runtime, due: float, *, place: str) -> None:
    """Wait for the end, and see that it came in time and left nothing behind."""
    end = await run.wait_ended()
    assert end.error is not None
    assert (end.error["code"], end.error["kind"]) == ("deadline_exceeded", "deadline")
    assert "; used: " in end.error["message"]
    # A write that has started keeps the grace.
    grace = runtime.limits.grace_seconds if place == "write" else 0.0
    assert 0 <= end.updated_at - due <= 1.0 + grace
    await settle()
    assert runtime._host.node.effects.of(run.id) == 0


@pytest.mark.parametrize("recover", ["all", "none"])
async def test_a_deadline_is_kept_of_a_run_whose_answer_is_overdue_and_known_to_be_on_its_way(
    memory: Store, recover: Any
) -> None:
    """Its wait for a place is over its limit, which is no reason to do anything: what comes after that counts."""
    limits = Limits(model_call_seconds=30, model_attempts=1, model_calls_at_once=1, dwell_seconds=1)
    agent = Agent("worker", model=ScriptedModel([Delay(29.0, "answer")]), budget=OPEN)
    async with memory.runtime(agent, limits=limits, recover=recover) as runtime:
        runs = [await runtime.start(agent, "go") for _ in range(6)]
        due = runtime._host.node.clock.now() + 73.4
        late = await runtime.start(agent, "go", deadline=due)

        ended = await late.wait_ended()

        assert ended.error is not None
        assert ended.error["code"] == "deadline_exceeded"
        assert 0 <= runtime._host.node.clock.now() - due < 1
        assert [(await run.wait_ended()).answer for run in runs] == ["answer"] * 6


async def test_a_run_that_is_started_after_its_deadline_fails_at_once_and_asks_nobody(store: Store) -> None:
    model = ScriptedModel(["done"])
    agent = Agent("worker", model=model)

    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "go", deadline=LoopClock().now() - 1.0, run_id="late")
        end = await run.wait_ended()
        again = await runtime.start(agent, "go", deadline=LoopClock().now() - 1.0, run_id="late")

        assert end.error is not None
        assert end.error["code"] == "deadline_exceeded"
        assert (end.turn_count, model.requests, end.seq) == (0, (), 1)
        assert (await again.snapshot()).seq == 1  # the same request is the same run, not an error


async def test_a_deadline_keeps_what_has_finished_and_says_what_was_at_work(store: Store, ledger: Ledger) -> None:
    calls = [calling("read"), calling("slow"), calling("slow")]
    slow = ledger.read(LONG, name="slow", timeout_seconds=LONG)
    agent = Agent("worker", model=ScriptedModel([calls]), tools=[ledger.read(1.0), slow], budget=OPEN)

    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "go", deadline=LoopClock().now() + 60.0)
        end = await run.wait_ended()

        assert end.error is not None
        assert end.error["message"] == (
            "the deadline passed; in EXECUTE_TOOL, turn 1, t1.c2 of 'slow' at work for 60.0 s, "
            f"t1.c3 of 'slow' at work for 60.0 s; used: 1 turn, 60.0 s active, {end.usage.total_tokens} tokens, "
            "3 tool calls, 0 failed"
        )
        assert [str(status) for status, _ in await results_of(run, runtime)] == ["ok", "cancelled", "cancelled"]


# -- clocks


class Jumping(LoopClock):
    """A clock that somebody sets; like the system's it never goes back, but stands until the wall has caught up."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = 0.0
        self.latest = 0.0

    def now(self) -> float:
        self.latest = max(self.latest, super().now() + self.offset)
        return self.latest


@pytest.mark.parametrize("suspended", [False, True])
async def test_a_clock_set_forward_past_a_deadline_is_noticed_within_thirty_seconds(
    memory: Store, ledger: Ledger, suspended: bool
) -> None:
    jumping = Jumping()
    agent = Agent("worker", model=ScriptedModel([READ]), tools=[ledger.read(LONG, timeout_seconds=LONG)], budget=OPEN)
    async with memory.runtime(agent, clock=jumping, policy=ask if suspended else allow_all) as runtime:
        run = await runtime.start(agent, "go", deadline=jumping.now() + 86_400.0)
        await asyncio.sleep(10.0)
        jumped = asyncio.get_running_loop().time()

        jumping.offset = 100_000.0
        end = await run.wait_ended()

        assert end.error is not None
        assert end.error["code"] == "deadline_exceeded"
        assert asyncio.get_running_loop().time() - jumped <= 30.0


async def test_a_deadline_follows_a_clock_set_back(memory: Store, ledger: Ledger) -> None:
    jumping = Jumping()
    agent = Agent("worker", model=ScriptedModel([READ]), tools=[ledger.read(LONG, timeout_seconds=LONG)], budget=OPEN)
    async with memory.runtime(agent, clock=jumping) as runtime:
        run = await runtime.start(agent, "go", deadline=jumping.now() + 100.0)
        await asyncio.sleep(50.0)

        jumping.offset = -1_000.0
        end = await run.wait_ended()

        assert end.error is not None
        assert end.error["code"] == "deadline_exceeded"
        # 1,000 s of standing still, and the patrol notices that it is time within 30 s.
        assert 1_100.0 <= asyncio.get_running_loop().time() <= 1_130.0


# -- a store that cannot write


async def test_a_deadline_that_a_store_cannot_take_is_the_first_thing_that_it_takes(
    memory: Store, ledger: Ledger
) -> None:
    """Nothing starts after it, and what was brought before it is kept."""
    gated = Gated(memory.journal)
    model = ScriptedModel([[calling("read")], "never"])
    agent = Agent("worker", model=model, tools=[ledger.read(8.0)], budget=OPEN)
    async with memory.runtime(agent, target=gated) as runtime:
        run = await runtime.start(agent, "go", deadline=LoopClock().now() + 10.0)
        await asyncio.sleep(5.0)
        gated.error = StoreFailed("runs.db", "append", "disk full")
        await asyncio.sleep(30.0)
        gated.error = None

        end = await run.wait_ended()

        assert end.error is not None
        assert end.error["code"] == "deadline_exceeded"
        assert end.updated_at - end.created_at <= 46.0
        assert len(model.requests) == 1
        assert [str(status) for status, _ in await results_of(run, runtime)] == ["ok"]


# -- precedence


@pytest.mark.parametrize("mode", ["fail", "wrap_up", "suspend"])
async def test_of_a_deadline_and_used_up_seconds_at_one_moment_the_deadline_counts(
    memory: Store, ledger: Ledger, mode: Any
) -> None:
    agent = Agent(
        "worker",
        model=ScriptedModel([READ, "never"]),
        tools=[ledger.read(LONG, timeout_seconds=LONG)],
        budget=Budget(max_seconds=10.0),
        on_budget=mode,
    )

    async with memory.runtime(agent) as runtime:
        end = await (await runtime.start(agent, "go", deadline=LoopClock().now() + 10.0)).wait_ended()

    assert end.error is not None
    assert end.error["code"] == "deadline_exceeded"


async def test_the_timer_reads_runs_that_stay_due_a_few_times_however_many_there_are() -> None:
    ids = [f"r-{n}" for n in range(10_000)]
    read, woken = [], []

    async def due(_now: float, *, limit: int) -> list[str]:
        read.append(min(limit, len(ids)))
        return ids[:limit]

    async def wake(run_id: str) -> None:
        woken.append(run_id)

    node: Any = SimpleNamespace(journal=SimpleNamespace(due=due), clock=LoopClock())
    await Timer(node, wake, only_used=False)._wake_stored(0.0)

    assert woken == ids
    assert sum(read) < 4 * len(ids)


def test_the_systems_clock_follows_the_wall_and_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    at = {"wall": 1_000.0, "monotonic": 0.0}
    monkeypatch.setattr(clock, "time", SimpleNamespace(time=lambda: at["wall"], monotonic=lambda: at["monotonic"]))
    system = clock.SystemClock()

    def passes(seconds: float, *, jump: float = 0.0) -> float:
        at["monotonic"] += seconds
        at["wall"] += seconds + jump
        return system.now()

    assert passes(10.0) == 1_010.0
    assert passes(1.0, jump=5_000.0) == 1_011.0  # not read again yet
    assert passes(clock.REREAD_SECONDS) == 6_026.0
    assert passes(clock.REREAD_SECONDS, jump=-5_000.0) == 6_026.0  # stands until the wall has caught up
    assert passes(4_984.0) == 6_026.0
    assert passes(2.0) == 6_027.0


def test_a_deadline_that_a_jump_brings_near_is_at_most_thirty_seconds_late() -> None:
    assert clock.REREAD_SECONDS + PATROL_SECONDS <= 30.0
