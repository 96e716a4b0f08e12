"""Who may run a tool call: bounds, and turns between runs."""

from __future__ import annotations

import gc
import time
from collections import Counter, deque
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from geartrain.limits import Limits
from geartrain.tools import Pool, Ticket
from geartrain.tools._pool import Kind


def pool_of(task: int = 4, thread: int = 2, per_run: int = 2) -> Pool:
    return Pool(Limits(task_calls_at_once=task, thread_calls_at_once=thread, calls_at_once_per_run=per_run))


class Calls:
    """Requests with names, and the order in which they were granted."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.granted: list[str] = []

    def ask(self, run_id: str, name: str, kind: Kind = "task") -> Ticket:
        return self.pool.request(run_id, kind, lambda: self.granted.append(name))


def test_a_free_slot_is_granted_at_once() -> None:
    calls = Calls(pool_of())

    calls.ask("r", "a")

    assert calls.granted == ["a"]


def test_a_run_has_at_most_its_own_number_of_calls_of_both_kinds() -> None:
    calls = Calls(pool_of(per_run=2))
    first = calls.ask("r", "a", "task")
    calls.ask("r", "b", "thread")
    calls.ask("r", "c", "task")
    before = list(calls.granted)

    first.release()

    assert before == ["a", "b"]
    assert calls.granted == ["a", "b", "c"]


def test_one_kind_being_full_does_not_hold_up_the_other() -> None:
    calls = Calls(pool_of(task=1, thread=1, per_run=4))

    for name, kind in [("a", "task"), ("b", "task"), ("c", "thread")]:
        calls.ask("r", name, kind)

    assert calls.granted == ["a", "c"]


def test_runs_take_turns_and_within_a_run_first_come_is_first_served() -> None:
    calls = Calls(pool_of(task=1, per_run=1))
    held = calls.ask("holder", "held")
    tickets = [calls.ask(run_id, f"{run_id}{number}") for run_id in "abc" for number in range(3)]

    held.release()
    for _ in range(9):
        next(t for t in tickets if t.granted and not t.over).release()

    assert calls.granted == ["held", "a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


def test_a_run_that_asks_for_a_thousand_calls_delays_another_by_one() -> None:
    calls = Calls(pool_of(task=1, per_run=2))
    tickets = [calls.ask("greedy", f"g{number}") for number in range(1_000)]
    calls.ask("modest", "m")

    tickets[0].release()
    tickets[1].release()

    assert calls.granted[:3] == ["g0", "g1", "m"]


@pytest.mark.parametrize("way", ["release", "cancel"])
def test_giving_back_twice_gives_back_once(way: str) -> None:
    calls = Calls(pool_of(task=1))
    ticket = calls.ask("a", "a")
    calls.ask("b", "b")
    calls.ask("c", "c")

    getattr(ticket, way)()
    getattr(ticket, way)()

    assert calls.granted == ["a", "b"]


def test_a_claim_withdrawn_while_it_waits_is_never_granted() -> None:
    calls = Calls(pool_of(task=1))
    held = calls.ask("a", "a")
    calls.ask("b", "b").cancel()
    calls.ask("b", "c")

    held.release()

    assert calls.granted == ["a", "c"]
    assert calls.pool.statistics().task.waiting == 0


def test_a_forgotten_run_loses_what_waits_and_keeps_what_it_holds() -> None:
    calls = Calls(pool_of(task=1, per_run=2))
    held = calls.ask("a", "held")
    calls.ask("a", "waits")
    calls.pool.forget("a")
    calls.pool.forget("unknown")
    calls.ask("b", "b")
    before = list(calls.granted)

    held.release()

    assert before == ["held"]
    assert calls.granted == ["held", "b"]


def test_a_grant_may_give_back_at_once_for_ten_thousand_calls() -> None:
    pool = pool_of(task=1, per_run=1)
    held = pool.request("holder", "task", lambda: None)
    done: list[int] = []
    tickets: dict[int, Ticket] = {}

    def grant(number: int) -> None:
        done.append(number)
        tickets[number].release()

    for number in range(10_000):
        tickets[number] = pool.request(f"r{number}", "task", lambda number=number: grant(number))
    held.release()

    assert done == list(range(10_000))
    assert pool.statistics().runs == 0


def test_a_grant_that_raises_costs_no_slot_and_nobody_else() -> None:
    calls = Calls(pool_of(task=1))
    held = calls.ask("a", "a")

    def broken() -> None:
        raise RuntimeError("broken grant")

    calls.pool.request("b", "task", broken)
    calls.ask("c", "c")

    with pytest.raises(RuntimeError, match="broken grant"):
        held.release()

    assert calls.granted == ["a", "c"]
    assert calls.pool.statistics().task.in_use == 1


def seconds_per_call(runs: int) -> float:
    """Let *runs* runs ask for two calls each, all but one of which wait, and give them back in the order of turns."""
    pool = pool_of(task=1, per_run=1)
    granted: deque[int] = deque()
    began = time.process_time()
    tickets = [
        pool.request(f"r{number % runs}", "task", lambda number=number: granted.append(number))
        for number in range(2 * runs)
    ]
    done = 0
    while granted:
        tickets[granted.popleft()].release()
        done += 1
    assert done == 2 * runs
    assert pool.statistics().runs == 0
    return (time.process_time() - began) / done


def test_a_call_costs_the_same_however_many_runs_wait() -> None:
    gc.disable()  # what a collection costs depends on all that the other tests have left
    try:
        few = min(seconds_per_call(500) for _ in range(3))
        many = min(seconds_per_call(10_000) for _ in range(3))
    finally:
        gc.enable()

    assert many < 10 * few


class PoolMachine(RuleBasedStateMachine):
    """Any order of claims and releases keeps the bounds, wastes no slot and leaves no entry behind."""

    tickets = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool_of(task=3, thread=2, per_run=2)
        self.alive: list[Ticket] = []
        self.numbers = count()
        self.requested: dict[Ticket, int] = {}
        self.grants: Counter[int] = Counter()

    @rule(target=tickets, run_id=st.sampled_from("abcd"), kind=st.sampled_from(["task", "thread"]))
    def request(self, run_id: str, kind: Kind) -> Ticket:
        number = next(self.numbers)
        ticket = self.pool.request(run_id, kind, lambda: self.grants.update([number]))
        self.alive.append(ticket)
        self.requested[ticket] = number
        return ticket

    @rule(ticket=consumes(tickets), twice=st.booleans())
    def release(self, ticket: Ticket, twice: bool) -> None:
        ticket.release()
        if twice:
            ticket.cancel()
        self._drop_over()

    @rule(target=tickets, run_id=st.sampled_from("abcd"))
    def forget(self, run_id: str) -> object:
        self.pool.forget(run_id)
        self._drop_over()
        assert all(ticket.granted for ticket in self.alive if ticket.run_id == run_id)
        return multiple()

    def _drop_over(self) -> None:
        self.alive = [ticket for ticket in self.alive if not ticket.over]

    @invariant()
    def each_is_granted_once(self) -> None:
        assert all(self.grants[number] == ticket.granted for ticket, number in self.requested.items())

    @invariant()
    def bounds_hold(self) -> None:
        held = [ticket for ticket in self.alive if ticket.granted]
        kinds, runs = Counter(t.kind for t in held), Counter(t.run_id for t in held)
        statistics = self.pool.statistics()
        assert kinds["task"] == statistics.task.in_use <= 3
        assert kinds["thread"] == statistics.thread.in_use <= 2
        assert all(held <= 2 for held in runs.values())
        assert statistics.runs == len({ticket.run_id for ticket in self.alive})

    @invariant()
    def no_slot_is_wasted(self) -> None:
        runs = Counter(ticket.run_id for ticket in self.alive if ticket.granted)
        statistics = self.pool.statistics()
        for ticket in self.alive:
            if not ticket.granted:
                slots = getattr(statistics, ticket.kind)
                assert slots.in_use == slots.capacity or runs[ticket.run_id] == 2


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=40, stateful_step_count=40)


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 6)), min_size=1, max_size=5, unique_by=lambda r: r[0])
)
def test_between_two_turns_of_a_waiting_run_every_other_waiting_run_has_one(demand: list[tuple[str, int]]) -> None:
    calls = Calls(pool_of(task=1, per_run=1))
    held = calls.ask("holder", "held")
    tickets = [calls.ask(run_id, run_id) for run_id, wanted in demand for _ in range(wanted)]

    held.release()
    for _ in tickets:
        next(ticket for ticket in tickets if ticket.granted and not ticket.over).release()

    order, left = calls.granted[1:], dict(demand)
    while order:
        round_ = [run_id for run_id, wanted in left.items() if wanted]
        assert order[: len(round_)] == round_
        order = order[len(round_) :]
        left = {run_id: wanted - (wanted > 0) for run_id, wanted in left.items()}
