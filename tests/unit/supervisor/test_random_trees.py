"""Random trees under random crashes: whatever happens, the rules hold and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tree_world import World

from geartrain.actors import ActorFailed, ActorGroup, ActorStopped, MessageNotHandled
from geartrain.errors import GeartrainError
from geartrain.limits import Limits
from geartrain.supervisor import (
    Backoff,
    ChildNotFound,
    ChildSpec,
    ChildState,
    ChildStatistics,
    RestartLimit,
    Strategy,
    Supervisor,
    SupervisorRef,
    supervise,
)
from geartrain.testing import VirtualLoop, settle

WINDOW_SECONDS = 5.0


@dataclass(frozen=True)
class Counted(RestartLimit):
    """A limit that notes what it was asked: when, what it had allowed before, and its answer."""

    asked: list[tuple[float, int, bool]] = field(default_factory=list)

    def restarted(self, history: Iterable[float], now: float) -> tuple[tuple[float, ...], bool]:
        before = tuple(history)
        after, allowed = RestartLimit.restarted(self, before, now)
        self.asked.append((now, len(before), allowed))
        return after, allowed


@dataclass(frozen=True)
class Shape:
    """A supervisor to be: what it is, and what is below it: leaves by their restart kind, or shapes."""

    strategy: str
    restarts: int
    backoff_seconds: float
    below: tuple[Any, ...]


KINDS = st.sampled_from(["permanent", "transient", "temporary"])
STRATEGIES = st.sampled_from(list(map(str, Strategy)))


def shapes(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Shape]:
    waits = st.sampled_from([0.0, 0.5, 2.0])
    return st.builds(Shape, STRATEGIES, st.integers(0, 3), waits, st.lists(below, min_size=1, max_size=3).map(tuple))


TREES = shapes(KINDS | shapes(KINDS | shapes(KINDS)))
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["crash", "stop", "crash and fail to start", "work", "ask", "restart by hand", "stop by hand"]),
        st.integers(0, 50),
        st.sampled_from([0.0, 0.0, 0.3, 1.0, 6.0]),
    ),
    max_size=25,
)


class Grown:
    """A shape made into a tree, and what is known of its leaves."""

    def __init__(self, shape: Shape, world: World) -> None:
        self.world = world
        self.leaves: list[str] = []
        self.limits: dict[str, Counted] = {}
        # Leaf: those to its right under a strategy that keeps the order.
        self.right_of: dict[str, set[str]] = {}
        self.supervisor = self.grow(shape, "")

    def grow(self, shape: Shape, path: str) -> Supervisor:
        children, leaves = [], []
        for number, below in enumerate(shape.below):
            name = f"{path}{number}"
            if isinstance(below, Shape):
                children.append(ChildSpec(str(number), self.grow(below, f"{name}/")))
            else:
                children.append(ChildSpec(str(number), self.world.toy(name), restart=below, shutdown_seconds=1))
                leaves.append(name)
                self.world.start_seconds[name], self.world.stop_seconds[name] = 0.1, 0.2
        self.leaves += leaves
        for position, leaf in enumerate(leaves):
            self.right_of[leaf] = set() if shape.strategy == "one_for_one" else set(leaves[position + 1 :])
        limit = self.limits[path] = Counted(shape.restarts, WINDOW_SECONDS)
        backoff = Backoff(shape.backoff_seconds, 2, 8, 0.5, 5)
        return Supervisor(children, shape.strategy, limit, backoff)

    def above(self, leaf: str) -> Iterator[Counted]:
        parts = leaf.split("/")
        for depth in range(len(parts)):
            yield self.limits["".join(f"{part}/" for part in parts[:depth])]


async def act(grown: Grown, acts: list[tuple[str, int, float]]) -> tuple[Counter[str], list[Any]]:
    world, by_hand, asks = grown.world, Counter(), []
    async with ActorGroup(limits=Limits(grace_seconds=60), on_failure=world.failures.append) as group:
        world.group = group
        tree = supervise(group, grown.supervisor, name="root", on_crash=world.reports.append, seed=7)
        await tree.wait_started()
        for what, which, seconds in acts:
            leaf = grown.leaves[which % len(grown.leaves)]
            world.bad_starts[leaf] = 1 if what == "crash and fail to start" else 0
            try:
                ref = tree.child(leaf)
                match what:
                    case "crash" | "crash and fail to start":
                        ref.send_nowait(ValueError("poison"))
                    case "stop":
                        ref.stop()
                    case "work":
                        ref.send_nowait(("sleep", 3))
                    case "ask":
                        asks.append(asyncio.create_task(ref.ask("hello", 10_000)))
                    case _ if not grown.right_of[leaf]:  # by hand only where that disturbs no order
                        parent, _, name = leaf.rpartition("/")
                        below = tree.subtree(parent) if parent else tree
                        by_hand[leaf] += 1
                        asks.append(
                            asyncio.create_task(
                                below.stop_child(name) if what == "stop by hand" else below.restart_child(name)
                            )
                        )
            except GeartrainError:  # it is down by now
                pass
            await asyncio.sleep(seconds)
        await asyncio.sleep(100)
        world.drain()
        assert {child.state for child in all_children(tree)} <= {ChildState.UP, ChildState.DOWN}
        tree.stop()
        await tree.wait_stopped()
        stops = [event for event in world.drain() if event.startswith("-")]
        assert stops == [f"-{leaf}" for leaf in reversed(sorted_leaves(grown)) if f"-{leaf}" in stops]
        assert group.statistics().actors == 0
        assert group.statistics().abandoned == ()
        answers = await asyncio.gather(*asks, return_exceptions=True)
        await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    loop = asyncio.get_running_loop()
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []
    return by_hand, answers


def all_children(tree: SupervisorRef) -> Iterator[ChildStatistics]:
    for child in tree.children():
        yield child
        if child.is_supervisor and child.state is ChildState.UP:
            yield from all_children(tree.subtree(child.name))


def sorted_leaves(grown: Grown) -> list[str]:
    return sorted(grown.leaves, key=lambda leaf: [int(part) for part in leaf.split("/")])


class Watched(list[str]):
    """The events of a world, checked as they come; what is wrong is noted: an actor's errors are its supervisor's."""

    def __init__(self, grown: Grown) -> None:
        self.grown = grown
        self.up: set[str] = set()
        self.starts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def append(self, event: str) -> None:
        super().append(event)
        if event.startswith("+"):
            leaf = event[1:]
            if leaf in self.up:
                self.wrong.append(f"{leaf} has two instances")
            if self.grown.right_of[leaf] & self.up:
                self.wrong.append(f"{leaf} starts under those that need it: {sorted(self.up)}")
            self.up.add(leaf)
            self.starts[leaf] += 1
        elif event.startswith("-"):
            self.up.discard(event[1:])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TREES, ACTS)
def test_whatever_happens_limits_hold_the_order_is_right_and_nothing_is_left(
    shape: Shape, acts: list[tuple[str, int, float]]
) -> None:
    world = World()
    grown = Grown(shape, world)
    watched = Watched(grown)
    world.events = watched
    world.drain = lambda: [watched.pop(0) for _ in range(len(watched))]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        by_hand, answers = runner.run(act(grown, acts))

    assert watched.wrong == []
    assert not watched.up
    for limit in grown.limits.values():
        instance: list[float] = []
        for now, before, allowed in limit.asked:
            instance = instance if before else []  # nothing that counts: a new instance, or long ago
            instance += [now] if allowed else []
            assert sum(at >= now - WINDOW_SECONDS for at in instance) <= limit.restarts
    for leaf, starts in watched.starts.items():
        granted = sum(allowed for limit in grown.above(leaf) for _, _, allowed in limit.asked)
        assert starts <= 1 + granted + by_hand[leaf]
    told = (ActorFailed, ActorStopped, MessageNotHandled, ChildNotFound)
    assert all(answer is None or isinstance(answer, (str, *told)) for answer in answers), answers
