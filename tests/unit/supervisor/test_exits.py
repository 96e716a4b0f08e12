"""How a child may end, and what its supervisor does about it: restart kind × exit kind, and kinds of shutdown."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from tree_world import Crash, World, moved

from geartrain.actors import ActorFailed, ActorGroup, ActorStopped
from geartrain.limits import UNLIMITED
from geartrain.supervisor import (
    NO_BACKOFF,
    ChildNotStarted,
    ChildSpec,
    CrashContext,
    Restart,
    Supervisor,
    supervise,
)
from geartrain.testing import settle

EXITS = ("stops itself", "is asked to stop", "raises", "exits", "is cancelled", "cannot stop", "raises, cannot stop")
FAILS = set(EXITS) - {"stops itself", "is asked to stop"}

# restart kind, exit kind: whether the child comes back.
COMES_BACK = {
    **{("permanent", exit_): True for exit_ in EXITS},
    **{("transient", exit_): exit_ in FAILS for exit_ in EXITS},
    **{("temporary", exit_): False for exit_ in EXITS},
}


def bring_about(world: World, tree: Any, exit_: str) -> None:
    ref = tree.child("b")
    if "cannot stop" in exit_:
        world.bad_stops.add("b")
    match exit_:
        case "stops itself":
            ref.send_nowait("stop")
        case "is asked to stop" | "cannot stop":
            ref.stop()
        case "raises" | "raises, cannot stop":
            ref.send_nowait(ValueError("poison"))
        case "exits":
            ref.send_nowait(SystemExit(3))
        case "is cancelled":
            ref.send_nowait(asyncio.CancelledError())


@pytest.mark.parametrize(("restart", "exit_"), list(itertools.product(map(str, Restart), EXITS)))
async def test_a_child_comes_back_after_the_exits_that_its_restart_kind_says(restart: str, exit_: str) -> None:
    world = World()
    supervisor = world.supervisor("a", "c", strategy="one_for_one")
    async with world.tree(supervisor) as tree:
        await tree.start_child(world.spec("b", restart=restart))
        world.drain()
        ref = tree.child("b")
        bring_about(world, tree, exit_)
        waits = asyncio.create_task(ref.ask("waits", 60))
        await settle()
        world.bad_stops.clear()

        if COMES_BACK[restart, exit_]:
            assert world.events[-1] == "+b"
            assert tree.child("b") is ref
            assert await waits == "b waits"
            assert tree.statistics().restarts_in_window == 1
        else:
            assert "+b" not in world.events
            with pytest.raises(ActorStopped):
                await waits
            states = {child.name: str(child.state) for child in tree.children()}
            # A temporary child is forgotten, a transient one stays, to be started again by hand.
            assert states == {"a": "up", "c": "up", **({} if restart == "temporary" else {"b": "down"})}
            assert tree.statistics().restarts_in_window == 0
        assert [(report.context, report.offender.name) for report in world.reports] == (
            [(CrashContext.RUN, "root/b")] if exit_ in FAILS else []
        )


@pytest.mark.parametrize("restart", Restart)
async def test_whatever_its_kind_a_child_that_fails_in_the_first_start_fails_the_tree(restart: Restart) -> None:
    world = World(bad_starts={"b": 1})
    supervisor = Supervisor([world.spec("a"), world.spec("b", restart=restart)])
    async with world.tree(supervisor, up=False) as tree:
        with pytest.raises(ActorFailed) as raised:
            await tree.wait_started()

    assert isinstance(raised.value.__cause__, ChildNotStarted)
    assert moved(world.events) == "+a b cannot start -a"


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(3), Crash("x"), GeneratorExit(), asyncio.CancelledError()]
)
@pytest.mark.parametrize("where", ["factory", "started"])
async def test_whatever_a_factory_or_a_start_raises_it_is_tried_again_when_the_child_comes_back(
    error: BaseException, where: str
) -> None:
    world = World()
    fails = [False]
    make = world.toy("a")

    def factory() -> Any:
        toy = make()
        if fails[0]:
            fails[0] = False
            if where == "factory":
                raise error

            async def started() -> None:
                raise error

            toy.__class__ = type("BadToy", (type(toy),), {"started": lambda self: started()})
        return toy

    async with world.tree(Supervisor([ChildSpec("a", factory)], backoff=NO_BACKOFF)) as tree:
        fails[0] = True
        tree.child("a").send_nowait(ValueError("poison"))
        assert await tree.child("a").ask("back", 60) == "a back"

    assert [report.context for report in world.reports] == ["run", "start"]
    assert type(error).__name__ in world.reports[1].reason


@pytest.mark.parametrize("wrong", [None, World, "actor"])
async def test_a_factory_that_returns_no_actor_has_failed_to_start_it(wrong: Any) -> None:
    world = World()
    async with world.tree(Supervisor([ChildSpec("a", lambda: wrong)]), up=False) as tree:
        with pytest.raises(ActorFailed, match="an instance of a subclass of Actor"):
            await tree.wait_started()


async def test_a_factory_that_returns_the_same_actor_again_has_failed_to_start_it() -> None:
    world = World()
    same = world.toy("a")()
    async with world.tree(Supervisor([ChildSpec("a", lambda: same)], backoff=NO_BACKOFF)) as tree:
        tree.child("a").send_nowait(ValueError("poison"))
        await tree.wait_stopped()
        await settle()

    assert [report.context for report in world.reports] == ["run", "start", "start", "start", "limit"]
    assert "not spawned before" in world.reports[-1].reason


async def test_a_start_that_takes_too_long_is_a_failed_start() -> None:
    world = World()
    async with world.tree(world.supervisor()) as tree:
        await tree.start_child(world.spec("a", start_seconds=10))
        world.start_seconds["a"] = 99
        tree.child("a").send_nowait(ValueError())
        await asyncio.sleep(12)
        world.start_seconds["a"] = 0

        assert await tree.child("a").ask("back", 60) == "a back"

    assert [report.context for report in world.reports] == ["run", "start"]
    assert "not done within 10 s" in world.reports[1].reason


# shutdown, what the child has in hand: when it is down, and what is reported.
SHUTDOWNS = {
    (None, "idle"): (0, ""),
    (2.0, "idle"): (0, ""),
    ("brutal", "idle"): (0, ""),
    (UNLIMITED, "idle"): (0, ""),
    (None, "works"): (2.5, ""),  # half of the grace of 5 s, then it is cancelled
    (2.0, "works"): (1, ""),
    ("brutal", "works"): (0, ""),
    (UNLIMITED, "works"): (60, ""),
    (None, "swallows"): (3.75, "abandoned"),
    (2.0, "swallows"): (1.5, "abandoned"),
    ("brutal", "swallows"): (0, "abandoned"),
    (UNLIMITED, "swallows"): (60, ""),
    (None, "cleans up"): (4.5, "CancelledError"),
    (2.0, "cleans up"): (1.8, "CancelledError"),
    ("brutal", "cleans up"): (0, "CancelledError"),
    (UNLIMITED, "cleans up"): (60, ""),
    (None, "raises"): (0, "cannot stop"),
    (2.0, "raises"): (0, "cannot stop"),
    ("brutal", "raises"): (0, "cannot stop"),
    (UNLIMITED, "raises"): (0, "cannot stop"),
}


@pytest.mark.parametrize(("shutdown_seconds", "does"), SHUTDOWNS)
@pytest.mark.parametrize("how", ["child", "tree", "restart"])
async def test_a_child_is_stopped_within_its_limit_then_killed_and_named(
    shutdown_seconds: Any, does: str, how: str
) -> None:
    world = World()
    loop = asyncio.get_running_loop()
    async with world.tree(world.supervisor("a", "c", strategy="one_for_all")) as tree:
        await tree.start_child(world.spec("b", shutdown_seconds=shutdown_seconds))
        if does in ("works", "swallows"):
            tree.child("b").send_nowait(("sleep" if does == "works" else "swallow", 60))
        world.stop_seconds = {"b": 60} if does == "cleans up" else {}
        world.bad_stops = {"b"} if does == "raises" else set()
        await settle()

        if how == "child":
            await tree.stop_child("b")
        elif how == "tree":
            tree.stop()
            await tree.wait_stopped()
        else:
            tree.child("a").send_nowait(ValueError())
            await settle()
            assert await tree.child("b").ask("back", 1_000) == "b back"
        seconds, reported = SHUTDOWNS[shutdown_seconds, does]

        assert loop.time() == pytest.approx(seconds)
        await settle()
        reports = [report for report in world.reports if report.context is CrashContext.SHUTDOWN]
        assert [(report.offender.name, reported in report.reason) for report in reports] == (
            [("root/b", True)] if reported else []
        )
        world.bad_stops, world.stop_seconds = set(), {}
        await asyncio.sleep(100)


async def test_a_report_says_which_supervisor_what_it_was_about_why_and_whose_fault_it_was() -> None:
    world = World()
    async with world.tree(world.supervisor("a")) as tree:
        tree.child("a").send_nowait(ValueError("first"))
        tree.child("a").send_nowait(ValueError("second"))
        await settle()

    [_, report] = world.reports
    assert (report.supervisor, report.context, report.reason) == ("root", "run", "ValueError('second')")
    assert (report.offender.name, report.offender.restart, report.offender.restarts) == ("root/a", "permanent", 1)
    assert "in receive" in report.offender.traceback
    assert str(report) == "'root/a' of 'root' failed (run): ValueError('second')"


async def test_without_a_hook_a_crash_goes_to_the_loops_exception_handler_and_a_hook_that_raises_stops_nothing() -> (
    None
):
    world = World()
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["message"]))

    def deaf(report: Any) -> None:
        raise RuntimeError("deaf")

    async with ActorGroup() as group:
        for hook in (None, deaf):
            tree = supervise(group, world.supervisor("a"), on_crash=hook)
            await tree.wait_started()
            tree.child("a").send_nowait(ValueError("poison"))
            assert await tree.child("a").ask("back", 1) == "a back"

    assert "failed (run): ValueError('poison')" in told[0]
    assert len(told) == 2
