"""Supervisors within supervisors, children that come and go by hand, and the ends of whole trees."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from typing import Any

import pytest
from tree_world import World, moved

from geartrain.actors import (
    Actor,
    ActorElsewhere,
    ActorFailed,
    ActorGroup,
    ActorState,
    ActorStopped,
    GroupClosed,
    Stopped,
)
from geartrain.errors import InvalidValue
from geartrain.limits import Limits
from geartrain.supervisor import (
    NO_BACKOFF,
    Backoff,
    ChildNotDown,
    ChildNotFound,
    ChildSpec,
    RestartLimit,
    RestartsExhausted,
    SpecRefused,
    Supervisor,
    SupervisorRef,
    WrongSpec,
    supervise,
)
from geartrain.testing import settle

ONCE = RestartLimit(1, 60)
NEVER = RestartLimit(0, 60)


def nested(world: World, *, restart: Any = "permanent", limit: RestartLimit = NEVER, **outer: Any) -> Supervisor:
    """Return a tree: a, (b1, b2), c."""
    inner = world.supervisor("b1", "b2", limit=limit)
    children = [world.spec("a"), ChildSpec("b", inner, restart=restart), world.spec("c")]
    return Supervisor(children, backoff=NO_BACKOFF, **outer)


# Nesting


async def test_a_tree_starts_depth_first_left_to_right_and_stops_in_the_opposite_order() -> None:
    world = World(stop_seconds=dict.fromkeys(("a", "b1", "b2", "c"), 1))
    async with world.tree(nested(world), up=False) as tree:
        await tree.wait_started()
        assert moved(world.drain()) == "+a +b1 +b2 +c"
        tree.stop()
        await tree.wait_stopped()
        assert moved(world.drain()) == "-c -b2 -b1 -a"
        assert asyncio.get_running_loop().time() == 4
    assert world.reports == []
    assert world.failures == []


@pytest.mark.parametrize(
    ("strategy", "events"),
    [
        ("one_for_one", "-b2 -b1 +b1 +b2"),
        ("rest_for_one", "-b2 -b1 -c +b1 +b2 +c"),
        ("one_for_all", "-b2 -b1 -c -a +a +b1 +b2 +c"),
    ],
)
async def test_a_supervisor_that_gives_up_is_restarted_by_its_own_and_no_ref_or_message_is_lost(
    strategy: str, events: str
) -> None:
    world = World()
    async with world.tree(nested(world, strategy=strategy)) as tree:
        refs = [tree.child(path) for path in ("a", "b/b1", "b/b2", "c")]
        refs[2].send_nowait(ValueError("poison"))
        asks = [asyncio.create_task(ref.ask(f"q{n}", 60)) for n, ref in enumerate(refs) for _ in range(2)]
        await settle()

        assert moved(world.drain()) == events
        answers = await asyncio.gather(*asks)
        assert answers == [f"{n} q{i}" for i, n in enumerate(("a", "b1", "b2", "c")) for _ in range(2)]
        assert [tree.child(path) for path in ("a", "b/b1", "b/b2", "c")] == refs
        assert [(report.supervisor, report.context) for report in world.reports] == [
            ("root/b", "run"),
            ("root/b", "limit"),
            ("root", "run"),
        ]
        assert "RestartsExhausted" in world.reports[2].reason
        assert (tree.statistics().restarts, tree.statistics().up) == (events.count("+") - ("+b1" in events), 3)


async def test_a_crash_that_goes_on_climbs_up_level_by_level_until_the_root_ends() -> None:
    world = World()
    deep = world.supervisor("x", limit=ONCE)
    for name in ("l3", "l2", "l1"):
        deep = Supervisor([ChildSpec(name, deep)], limit=ONCE, backoff=NO_BACKOFF)
    async with world.tree(deep) as tree:
        ref = tree.child("l1/l2/l3/x")
        crashes = 0
        while ref.statistics().state is not ActorState.STOPPED:
            ref.send_nowait(ValueError(f"crash {crashes}"))
            crashes += 1
            await settle()

        assert crashes == 2**4  # each level doubles what the one below it bears
        [failure] = world.failures
        assert isinstance(failure.error, RestartsExhausted)
        assert world.group.statistics().actors == 0
        causes = [failure.error]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)
        assert [type(cause).__name__ for cause in causes] == ["RestartsExhausted"] * 4 + ["ValueError"]


@pytest.mark.parametrize(("restart", "state"), [("transient", "up"), ("temporary", None), ("permanent", "up")])
async def test_a_supervisor_that_fails_is_a_child_that_fails(restart: str, state: str | None) -> None:
    world = World()
    async with world.tree(nested(world, restart=restart)) as tree:
        ref = tree.child("b/b1")
        ref.send_nowait(ValueError())
        waits = asyncio.create_task(ref.ask("waits", 60))
        await settle()

        assert [str(child.state) for child in tree.children() if child.name == "b"] == ([state] if state else [])
        if state is None:
            with pytest.raises(ActorStopped):
                await waits
            assert world.group.statistics().actors == 3  # the root, a and c
        else:
            assert await waits == "b1 waits"


@pytest.mark.parametrize(("restart", "back"), [("transient", False), ("temporary", False), ("permanent", True)])
async def test_a_supervisor_that_is_asked_to_stop_is_a_child_that_is_asked_to(restart: str, back: bool) -> None:
    world = World()
    async with world.tree(nested(world, restart=restart)) as tree:
        ref = tree.child("b/b1")
        tree.subtree("b").stop()
        await settle()

        assert moved(world.drain()) == ("-b2 -b1 +b1 +b2" if back else "-b2 -b1")
        assert (ref.statistics().state is ActorState.RUNNING) is back


async def test_a_supervisor_that_cannot_come_back_up_is_tried_again_up_to_the_limit_above_it() -> None:
    world = World()
    async with world.tree(nested(world, strategy="rest_for_one")) as tree:
        world.bad_starts["b2"] = 2
        tree.child("b/b1").send_nowait(ValueError())
        assert await tree.child("c").ask("ready", 60) == "c ready"
        await settle()
        assert tree.statistics().restarts_in_window == 3
        world.bad_starts["b2"] = 99
        tree.child("b/b1").send_nowait(ValueError())
        await tree.wait_stopped()

    assert world.group.statistics().actors == 0


async def test_a_supervisor_with_a_limit_of_its_own_kills_what_is_left_below_it() -> None:
    world = World(stop_seconds={"b1": 10, "b2": 10})
    inner = Supervisor([world.spec(name, shutdown_seconds=60) for name in ("b1", "b2")])
    async with world.tree(Supervisor([ChildSpec("b", inner, shutdown_seconds=15)])) as tree:
        await tree.stop_child("b")

        assert asyncio.get_running_loop().time() == pytest.approx(15)
        assert moved(world.events) == "-b2"
        await settle()
        assert [(report.offender.name, report.context) for report in world.reports] == [("root/b/b1", "shutdown")]


async def test_a_brutal_end_of_a_supervisor_kills_all_below_it_at_once() -> None:
    world = World(stop_seconds={"b1": 10, "b2": 10})
    inner = world.supervisor("b1", "b2")
    async with world.tree(Supervisor([ChildSpec("b", inner, shutdown_seconds="brutal")])) as tree:
        await tree.stop_child("b")

        assert asyncio.get_running_loop().time() == 0
        assert world.group.statistics().actors == 1


# Children by hand


async def test_a_child_can_be_added_stopped_restarted_and_deleted() -> None:
    world = World()
    async with world.tree(world.supervisor("a", strategy="rest_for_one")) as tree:
        await tree.start_child(world.spec("b"))
        first = tree.child("b")
        assert await first.ask("hello", 1) == "b hello"

        await tree.stop_child("b")
        with pytest.raises(ActorStopped):
            first.send_nowait("late")
        with pytest.raises(ChildNotFound):
            tree.child("b")
        assert [(child.name, str(child.state)) for child in tree.children()] == [("a", "up"), ("b", "down")]

        tree.child("a").send_nowait(ValueError())
        await settle()
        assert [str(child.state) for child in tree.children()] == ["up", "down"]  # what was stopped stays down

        await tree.restart_child("b")
        second = tree.child("b")
        assert (second is first, await second.ask("hello", 1)) == (False, "b hello")

        with pytest.raises(ChildNotDown):
            tree.delete_child("b")
        await tree.stop_child("b")
        tree.delete_child("b")
        assert [child.name for child in tree.children()] == ["a"]


async def test_a_child_that_is_up_can_be_restarted_by_hand_and_keeps_its_messages() -> None:
    world = World()
    async with world.tree(world.supervisor("a", "b", strategy="one_for_all", limit=NEVER)) as tree:
        ref = tree.child("a")
        asks = [asyncio.create_task(ref.ask(message, 60)) for message in (("sleep", 1), "one", "two")]
        await settle()

        await tree.restart_child("a")

        assert moved(world.drain()) == "-a +a"
        assert (await asyncio.gather(*asks))[1:] == ["a one", "a two"]
        assert tree.child("a") is ref
        assert [child.restarts for child in tree.children()] == [1, 0]
        assert tree.statistics().restarts_in_window == 0


async def test_whoever_waits_for_a_stop_hears_of_it_though_somebody_starts_the_child_again() -> None:
    world = World(stop_seconds={"a": 1})
    async with world.tree(world.supervisor("a")) as tree:
        stopping = asyncio.create_task(tree.stop_child("a"))
        await settle()
        await tree.restart_child("a")

        async with asyncio.timeout(10):
            await stopping
        assert [str(child.state) for child in tree.children()] == ["up"]


async def test_a_restart_by_hand_does_not_wait_for_a_back_off() -> None:
    world = World()
    supervisor = Supervisor([world.spec("a")])
    async with world.tree(supervisor) as tree:
        world.bad_starts["a"] = 2
        tree.child("a").send_nowait(ValueError())
        await asyncio.sleep(0.2)
        world.bad_starts["a"] = 0
        since = asyncio.get_running_loop().time()
        await tree.restart_child("a")
        assert asyncio.get_running_loop().time() == since


async def test_an_added_child_that_fails_to_start_is_told_not_kept_and_no_restart() -> None:
    world = World(bad_starts={"b": 1})
    async with world.tree(world.supervisor("a", limit=NEVER)) as tree:
        with pytest.raises(ActorFailed, match="b cannot start") as raised:
            await tree.start_child(world.spec("b"))

        assert isinstance(raised.value.__cause__, OSError)
        assert [child.name for child in tree.children()] == ["a"]
        await tree.start_child(world.spec("b"))
        assert world.failures == []


async def test_an_added_name_must_be_new_and_a_supervisor_can_be_added_too() -> None:
    world = World()
    async with world.tree(world.supervisor("a")) as tree:
        with pytest.raises(SpecRefused) as refused:
            await tree.start_child(world.spec("a"))
        assert refused.value.why is WrongSpec.NAME_TAKEN
        await tree.start_child(ChildSpec("more", world.supervisor("x", "y")))

        assert await tree.subtree("more").child("y").ask("hello", 1) == "y hello"
        assert tree.child("more/y") is tree.subtree("more").child("y")
        assert (tree.statistics().children, tree.statistics().supervisors) == (2, 1)
        with pytest.raises(ChildNotFound, match=r"it is a supervisor, which subtree\(\) reaches"):
            tree.child("more")
        with pytest.raises(ChildNotFound, match=r"it is no supervisor, child\(\) reaches it"):
            tree.subtree("a")
        with pytest.raises(ChildNotFound, match=r"/more' has no such child 'z': those that it has are 'x', 'y'"):
            tree.child("more/z")


async def test_who_asks_for_a_child_too_early_or_once_it_is_down_is_told_which_it_is() -> None:
    world = World()
    async with world.tree(world.supervisor("a"), up=False) as tree:
        with pytest.raises(ChildNotFound, match=r"it has not begun to start; await wait_started\(\)"):
            tree.child("a")
        await tree.wait_started()
        await tree.stop_child("a")
        with pytest.raises(ChildNotFound, match="it is down, until somebody starts it"):
            tree.child("a")


async def test_a_restart_of_the_supervisor_forgets_children_that_were_added() -> None:
    world = World()
    async with world.tree(nested(world)) as tree:
        await tree.subtree("b").start_child(world.spec("b3"))
        added = tree.child("b/b3")
        tree.child("b/b1").send_nowait(ValueError())
        await settle()

        assert [child.name for child in tree.subtree("b").children()] == ["b1", "b2"]
        assert added.statistics().state is ActorState.STOPPED


async def test_a_subtree_ref_stays_good_through_restarts_and_refuses_while_it_is_down() -> None:
    world = World()
    async with world.tree(nested(world)) as tree:
        subtree = tree.subtree("b")
        tree.child("b/b1").send_nowait(ValueError())
        await settle()
        await subtree.start_child(world.spec("b3"))
        assert [child.name for child in subtree.children()] == ["b1", "b2", "b3"]
        await tree.stop_child("b")
        with pytest.raises(ActorStopped):
            await subtree.start_child(world.spec("b4"))
        with pytest.raises(ActorStopped):
            await subtree.restart_child("b1")


async def test_a_cancelled_call_leaves_the_child_and_nothing_behind() -> None:
    world = World(start_seconds={"b": 5})
    async with world.tree(world.supervisor("a")) as tree:
        adding = asyncio.create_task(tree.start_child(world.spec("b")))
        await settle()
        adding.cancel()
        await asyncio.sleep(6)

        assert await tree.child("b").ask("hello", 1) == "b hello"
        assert not tree._engine.child("b")._waiters


# Ends of trees


async def test_leaving_the_group_stops_trees_in_their_order_within_the_grace() -> None:
    world = World(stop_seconds=dict.fromkeys(("a", "b1", "b2", "c"), 1))
    async with world.tree(nested(world), grace_seconds=10):
        pass

    assert moved(world.drain()) == "-c -b2 -b1 -a"
    assert asyncio.get_running_loop().time() == 4


@pytest.mark.parametrize("shutdown_seconds", [60, "unlimited"])
async def test_leaving_the_group_kills_what_is_left_when_the_grace_ends_whatever_limits_say(
    shutdown_seconds: Any,
) -> None:
    world = World(stop_seconds={"b": 50})
    specs = [world.spec(name, shutdown_seconds=shutdown_seconds) for name in "abc"]
    async with world.tree(Supervisor(specs), grace_seconds=10) as tree:
        tree.child("c").send_nowait(("swallow", 60))
        await settle()

    assert 9 <= asyncio.get_running_loop().time() <= 10
    assert world.group.statistics().actors == 0
    assert sorted(world.events) == ["-a", "-c"]  # at once, and b is still at it
    assert world.group.statistics().abandoned == ("root/c",)
    await asyncio.sleep(60)


async def test_leaving_the_group_while_a_tree_starts_ends_it_too() -> None:
    world = World(start_seconds={"b": 1_000})
    async with world.tree(world.supervisor("a", "b", "c"), up=False) as tree:
        await asyncio.sleep(1)

    assert asyncio.get_running_loop().time() <= 6
    assert moved(world.events) == "+a -a"
    with pytest.raises(ActorStopped):
        await tree.wait_started()


async def test_leaving_the_group_in_a_back_off_ends_the_tree_at_once() -> None:
    world = World()
    async with world.tree(Supervisor([world.spec("a"), world.spec("b")])) as tree:
        tree.child("a").send_nowait(ValueError())
        tree.child("a").send_nowait("waits")
        await settle()

    assert asyncio.get_running_loop().time() == 0
    assert [letter.message for letter in world.group.dead_letters if letter.why == "stopped"] == ["waits"]


async def test_nothing_starts_in_a_group_that_is_closed_and_what_is_no_tree_is_refused() -> None:
    world = World()
    async with world.tree(world.supervisor()) as tree:
        assert tree.statistics().children == 0
        for wrong in ([world.spec("a")], None, Supervisor):
            with pytest.raises(InvalidValue):
                supervise(world.group, wrong)
        for name in ("root", "a/b", "", 7):
            with pytest.raises(InvalidValue):
                supervise(world.group, world.supervisor(), name=name)
    with pytest.raises(GroupClosed):
        supervise(world.group, world.supervisor())


async def test_a_tree_that_finds_no_room_for_a_child_has_failed_to_start() -> None:
    world = World()
    async with world.tree(world.supervisor("a", "b", "c"), up=False, actors=3) as tree:
        with pytest.raises(ActorFailed, match="group of actors is full"):
            await tree.wait_started()
        await tree.wait_stopped()
        assert world.group.statistics().actors == 0


async def test_a_watcher_is_told_of_a_childs_end_and_not_of_its_restarts() -> None:
    told: list[Stopped] = []

    class Watcher(Actor):
        def receive(self, message: Any) -> None:
            told.append(message)

    world = World()
    async with world.tree(world.supervisor("a")) as tree:
        ref = tree.child("a")
        world.group.spawn(Watcher()).watch(ref)
        for _ in range(3):
            ref.send_nowait(ValueError())
            await settle()
        assert told == []
        await tree.stop_child("a")
        await settle()

    assert [(end.ref, end.reason) for end in told] == [(ref, "stopped by its supervisor")]


# AC-1, AC-9, and what it costs


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
@pytest.mark.parametrize("end", ["fail", "sibling fails", "stop", "stop_child", "restart_child", "escalate", "close"])
@pytest.mark.parametrize("k", [0, 1, 2, 50, 99])
async def test_a_hundred_asks_of_a_child_are_answered_or_told_within_a_second(strategy: str, end: str, k: int) -> None:
    """AC-1, with a supervisor: whatever happens while the k-th is in hand, nobody waits in vain."""
    world = World()
    loop = asyncio.get_running_loop()
    limit = NEVER if end == "escalate" else RestartLimit()
    supervisor = world.supervisor("a", "b", strategy=strategy, limit=limit)
    async with world.tree(supervisor, mailbox_capacity=60) as tree:
        ref = tree.child("b")
        asks = [asyncio.create_task(ref.ask(("sleep", 0.5) if n == k else n, 1_000)) for n in range(100)]
        await settle()
        match end:
            case "fail" | "escalate":
                for task in asyncio.all_tasks():
                    if task.get_name() == "root/b":
                        task.cancel()
            case "sibling fails":
                tree.child("a").send_nowait(ValueError())
            case "stop":
                tree.stop()
            case "stop_child":
                await tree.stop_child("b")
            case "restart_child":
                await tree.restart_child("b")
        if end == "close":
            await world.group.aclose()
        answers = await asyncio.gather(*asks, return_exceptions=True)

    assert loop.time() <= 1
    assert answers[:k] == [f"b {n}" for n in range(k)]
    ends = {"stop", "stop_child", "escalate", "close"}
    kinds = {type(answer) for answer in answers[k + 1 :]}
    assert kinds <= ({ActorStopped} if end in ends else {str})


async def test_nothing_is_lost_to_the_garbage_collector() -> None:
    """AC-9: no task, timer or child is held by nothing but the loop."""
    world = World(start_seconds={"b2": 1}, stop_seconds={"b1": 1})
    collecting = True
    gc.collect()
    gc.freeze()  # what was there before is not looked at again and again

    def collect() -> None:
        gc.collect()
        if collecting:
            asyncio.get_running_loop().call_later(0.05, collect)

    async with world.tree(nested(world, strategy="one_for_all", limit=RestartLimit(1, 60)), up=False) as tree:
        collect()
        await tree.wait_started()
        tree.child("b/b1").send_nowait(ValueError())
        tree.child("b/b2").send_nowait(("sleep", 1))
        await asyncio.sleep(3)
        tree.child("b/b2").send_nowait(ValueError())
        await asyncio.sleep(5)
        answers = [await tree.child(path).ask("alive", 5) for path in ("a", "b/b1", "b/b2", "c")]
        collecting = False
    gc.unfreeze()

    assert answers == ["a alive", "b1 alive", "b2 alive", "c alive"]


class Plain(Actor):
    def receive(self, message: Any) -> Any:
        return message


def children_of(number: int) -> list[ChildSpec]:
    return [ChildSpec(f"child-{n}", Plain) for n in range(number)]


async def test_an_idle_supervised_actor_is_a_small_object_too() -> None:
    sizes = {}
    for supervised in (False, True):
        async with ActorGroup(limits=Limits()) as group:
            specs = children_of(1_000)
            gc.collect()
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                kept: list[Any] = []
                if supervised:
                    tree: SupervisorRef = supervise(group, Supervisor(specs))
                    await tree.wait_started()
                    kept.append(tree)
                else:
                    kept.extend(group.spawn(Plain()) for _ in specs)
                await settle()
                gc.collect()
                after, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            sizes[supervised] = (after - before - sys.getsizeof(kept)) / 1_000
            assert len(asyncio.all_tasks()) <= 3  # none of them has a task

    assert sizes[False] < 1_500
    assert sizes[True] < 2_100, sizes


async def test_a_tree_is_used_from_its_loop_only() -> None:
    world = World()
    async with world.tree(world.supervisor("a")) as tree:
        with pytest.raises(ActorElsewhere):
            await asyncio.to_thread(tree.children)


@pytest.mark.real_time
def test_a_tree_lives_on_a_real_loop_in_debug_mode_too() -> None:
    world = World()
    backoff = Backoff(initial_seconds=0.01)

    async def live() -> list[str]:
        async with world.tree(nested(world, strategy="one_for_all", limit=RestartLimit(1))) as tree:
            await tree.start_child(ChildSpec("d", Supervisor([world.spec("d1")], backoff=backoff)))
            for path in ("b/b1", "b/b2", "d/d1"):
                tree.child(path).send_nowait(ValueError("poison"))
            return [await tree.child(path).ask("alive", 5) for path in ("a", "b/b1", "b/b2", "c", "d/d1")]

    assert asyncio.run(live(), debug=True) == ["a alive", "b1 alive", "b2 alive", "c alive", "d1 alive"]
    assert world.group.statistics().actors == 0
