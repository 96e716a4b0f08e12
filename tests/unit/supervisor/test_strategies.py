"""What each strategy does with living children: the full grid, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tree_world import World, moved

from geartrain.actors import ActorFailed, ActorState
from geartrain.supervisor import Backoff, ChildNotFound, CrashContext, RestartLimit, RestartsExhausted
from geartrain.testing import settle

CHILDREN = "abc"

# strategy, which child fails: what happens, in this order.
PLAIN = {
    ("one_for_one", "a"): "-a +a",
    ("one_for_one", "b"): "-b +b",
    ("one_for_one", "c"): "-c +c",
    ("one_for_all", "a"): "-a -c -b +a +b +c",
    ("one_for_all", "b"): "-b -c -a +a +b +c",
    ("one_for_all", "c"): "-c -b -a +a +b +c",
    ("rest_for_one", "a"): "-a -c -b +a +b +c",
    ("rest_for_one", "b"): "-b -c +b +c",
    ("rest_for_one", "c"): "-c +c",
}

# The same, where the last restart allowed has been: all that are still up stop right to left.
ESCALATED = {
    **{("one_for_one", name): "-" + " -".join(name + "cba".replace(name, "")) for name in CHILDREN},
    **{("one_for_all", name): "-" + " -".join(name + "cba".replace(name, "")) for name in CHILDREN},
    **{("rest_for_one", name): "-" + " -".join(name + "cba".replace(name, "")) for name in CHILDREN},
}

# strategy, which fails, which other child then cannot start, once: what happens.
ANOTHER_FAILS = {
    ("one_for_all", "a", "b"): "-a -c -b +a b cannot start -a +a +b +c",
    ("one_for_all", "a", "c"): "-a -c -b +a +b c cannot start -b -a +a +b +c",
    ("one_for_all", "b", "a"): "-b -c -a a cannot start +a +b +c",
    ("one_for_all", "b", "c"): "-b -c -a +a +b c cannot start -b -a +a +b +c",
    ("one_for_all", "c", "a"): "-c -b -a a cannot start +a +b +c",
    ("one_for_all", "c", "b"): "-c -b -a +a b cannot start -a +a +b +c",
    ("rest_for_one", "a", "b"): "-a -c -b +a b cannot start +b +c",
    ("rest_for_one", "a", "c"): "-a -c -b +a +b c cannot start +c",
    ("rest_for_one", "b", "c"): "-b -c +b c cannot start +c",
}


@pytest.mark.parametrize(("strategy", "failing"), PLAIN)
async def test_a_failed_child_takes_with_it_whom_the_strategy_says(strategy: str, failing: str) -> None:
    world = World()
    async with world.tree(world.supervisor(*CHILDREN, strategy=strategy)) as tree:
        refs = {name: tree.child(name) for name in CHILDREN}

        refs[failing].send_nowait(ValueError("poison"))
        await settle()

        assert moved(world.drain()) == PLAIN[strategy, failing]
        assert {name: tree.child(name) for name in CHILDREN} == refs
        assert [child.state for child in tree.children()] == ["up"] * 3
        assert [report.context for report in world.reports] == [CrashContext.RUN]
        assert tree.statistics().restarts_in_window == 1
    assert moved(world.drain()) == "-c -b -a"


@pytest.mark.parametrize(("strategy", "failing"), PLAIN)
async def test_whoever_is_restarted_keeps_its_ref_and_its_messages_but_the_one_in_hand(
    strategy: str, failing: str
) -> None:
    world = World()
    async with world.tree(world.supervisor(*CHILDREN, strategy=strategy)) as tree:
        asks = {}
        for name in CHILDREN:
            first = ValueError("poison") if name == failing else ("sleep", 0.5)
            asks[name] = [asyncio.create_task(tree.child(name).ask(message, 60)) for message in (first, "one", "two")]
        answers = {name: await asyncio.gather(*each, return_exceptions=True) for name, each in asks.items()}

    for name, (first, *rest) in answers.items():
        assert isinstance(first, ActorFailed) == (name == failing)  # half of the grace is enough for the others
        assert rest == [f"{name} one", f"{name} two"]


@pytest.mark.parametrize(("strategy", "failing"), ESCALATED)
async def test_past_the_limit_all_stop_right_to_left_and_the_supervisor_fails(strategy: str, failing: str) -> None:
    world = World()
    supervisor = world.supervisor(*CHILDREN, strategy=strategy, limit=RestartLimit(2, 60))
    async with world.tree(supervisor) as tree:
        for _ in range(2):
            tree.child(failing).send_nowait(ValueError("poison"))
            await settle()
        world.drain()
        left = [asyncio.create_task(tree.child(name).ask(("sleep", 1), 60)) for name in CHILDREN if name != failing]
        await settle()

        tree.child(failing).send_nowait(ValueError("the last"))
        await tree.wait_stopped()

        assert moved(world.drain()) == ESCALATED[strategy, failing]
        assert [type(told) for told in await asyncio.gather(*left, return_exceptions=True)] == [str, str]
        await settle()
        assert [report.context for report in world.reports] == ["run", "run", "run", "limit"]
        assert world.reports[-1].offender.name == f"root/{failing}"
        [failure] = world.failures
        assert failure.actor == "root"
        assert isinstance(failure.error, RestartsExhausted)
        assert str(failure.error.__cause__) == "the last"
        assert tree._life.state is ActorState.STOPPED
        assert world.group.statistics().actors == 0


@pytest.mark.parametrize(("strategy", "failing", "other"), ANOTHER_FAILS)
async def test_another_child_that_fails_to_come_back_counts_as_a_restart_and_is_tried_again(
    strategy: str, failing: str, other: str
) -> None:
    world = World()
    async with world.tree(world.supervisor(*CHILDREN, strategy=strategy)) as tree:
        world.bad_starts[other] = 1

        tree.child(failing).send_nowait(ValueError("poison"))
        await settle()

        assert moved(world.drain()) == ANOTHER_FAILS[strategy, failing, other]
        assert [report.context for report in world.reports] == ["run", "start"]
        assert tree.statistics().restarts_in_window == 2
        assert [await tree.child(name).ask("hello", 1) for name in CHILDREN] == ["a hello", "b hello", "c hello"]


@pytest.mark.parametrize(("strategy", "failing", "other"), ANOTHER_FAILS)
async def test_another_child_that_never_comes_back_uses_the_limit_up(strategy: str, failing: str, other: str) -> None:
    world = World()
    supervisor = world.supervisor(*CHILDREN, strategy=strategy, limit=RestartLimit(3, 60))
    async with world.tree(supervisor) as tree:
        world.bad_starts[other] = 99

        tree.child(failing).send_nowait(ValueError("poison"))
        await tree.wait_stopped()
        await settle()

        assert world.events.count(f"{other} cannot start") == 3  # the crash was the first of the three restarts
        assert [report.context for report in world.reports] == ["run", "start", "start", "start", "limit"]
        starts = [event for event in world.events if event.startswith("+")]
        stops = [event for event in world.events if event.startswith("-")]
        assert len(stops) == len(starts) + 3  # nothing is left up
        [failure] = world.failures
        assert isinstance(failure.error, RestartsExhausted)


@pytest.mark.parametrize("name", CHILDREN)
async def test_a_child_that_fails_in_the_first_start_fails_the_supervisor_at_once(name: str) -> None:
    world = World()
    world.bad_starts[name] = 1
    async with world.tree(world.supervisor(*CHILDREN), up=False) as tree:
        with pytest.raises(ActorFailed, match=f"root/{name}") as raised:
            await tree.wait_started()
        assert str(raised.value.__cause__.__cause__) == f"{name} cannot start"
        await tree.wait_stopped()
        await settle()

        before = CHILDREN[: CHILDREN.index(name)]
        assert world.events == [
            *(f"+{each}" for each in before),
            f"{name} cannot start",
            *(f"-{each}" for each in reversed(before)),
        ]
        assert [report.context for report in world.reports] == ["start"]
        assert len(world.failures) == 1


async def test_children_start_one_after_another_and_stop_one_after_another() -> None:
    world = World(start_seconds=dict.fromkeys(CHILDREN, 1), stop_seconds=dict.fromkeys(CHILDREN, 1))
    async with world.tree(world.supervisor(*CHILDREN), up=False) as tree:
        await asyncio.sleep(1.5)
        assert moved(world.events) == "+a"
        await tree.wait_started()
        assert asyncio.get_running_loop().time() == 3
        assert moved(world.drain()) == "+a +b +c"
        tree.stop()
        await asyncio.sleep(1.5)
        assert moved(world.events) == "-c"
        await tree.wait_stopped()
        assert asyncio.get_running_loop().time() == 6
    assert moved(world.events) == "-c -b -a"


async def test_the_restarts_of_siblings_count_once_and_their_starts_are_counted_each() -> None:
    world = World()
    async with world.tree(world.supervisor(*CHILDREN, strategy="one_for_all")) as tree:
        tree.child("b").send_nowait(ValueError())
        await settle()

        assert [child.restarts for child in tree.children()] == [1, 1, 1]
        assert tree.statistics().restarts_in_window == 1


async def test_two_children_that_crash_at_once_are_one_restart_of_all_and_both_are_reported() -> None:
    world = World()
    async with world.tree(world.supervisor(*CHILDREN, strategy="one_for_all")) as tree:
        tree.child("a").send_nowait(ValueError())
        tree.child("c").send_nowait(ValueError())
        await settle()

        assert sorted(world.drain()) == ["+a", "+b", "+c", "-a", "-b", "-c"]
        assert tree.statistics().restarts_in_window == 1
        assert [report.context for report in world.reports] == ["run", "shutdown"]


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_child_that_crashes_before_its_turn_to_be_stopped_comes_back_once_and_is_not_counted(
    strategy: str,
) -> None:
    world = World(stop_seconds={"c": 1})
    async with world.tree(world.supervisor(*CHILDREN, strategy=strategy)) as tree:
        tree.child("a").send_nowait(ValueError())
        await asyncio.sleep(0.5)
        tree.child("b").send_nowait(ValueError())
        await asyncio.sleep(2)

        assert moved(world.drain()) == "-a -b -c +a +b +c"
        assert [report.context for report in world.reports] == ["run", "shutdown"]
        assert [child.restarts for child in tree.children()] == [1, 1, 1]
        assert tree.statistics().restarts_in_window == 1


async def test_back_offs_grow_delay_nobody_else_and_begin_anew_after_a_calm_time() -> None:
    world = World()
    loop = asyncio.get_running_loop()
    backoff = Backoff(initial_seconds=1, factor=2, max_seconds=8, jitter=0, reset_seconds=100)
    supervisor = world.supervisor("a", "b", backoff=backoff, limit=RestartLimit(99, 60))
    async with world.tree(supervisor) as tree:
        waits = []
        for calm_seconds in (0, 0, 0, 0, 0, 200, 0):
            await asyncio.sleep(calm_seconds)
            tree.child("a").send_nowait(ValueError())
            since = loop.time()
            assert await tree.child("b").ask("here", 0.5) == "b here"
            await tree.child("a").ask("back", 60)
            waits.append(loop.time() - since)

        assert waits == pytest.approx([1, 2, 4, 8, 8, 1, 2])


async def test_a_sibling_in_back_off_holds_up_nobody_under_one_for_one() -> None:
    world = World()
    backoff = Backoff(initial_seconds=30, max_seconds=60, jitter=0)
    async with world.tree(world.supervisor("a", "b", backoff=backoff)) as tree:
        tree.child("a").send_nowait(ValueError())
        await asyncio.sleep(29)
        tree.child("b").send_nowait(ValueError())
        await asyncio.sleep(2)
        assert [child.state for child in tree.children()] == ["up", "waiting"]
        await asyncio.sleep(30)
        assert [child.state for child in tree.children()] == ["up", "up"]


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_stop_comes_between_the_restarts_of_a_strategy(strategy: str) -> None:
    world = World()
    async with world.tree(world.supervisor(*CHILDREN, strategy=strategy)) as tree:
        world.start_seconds["b"] = 10
        tree.child("a").send_nowait(ValueError())
        await asyncio.sleep(3)
        assert moved(world.drain()) == "-a -c -b +a"

        tree.stop()
        await tree.wait_stopped()

        assert asyncio.get_running_loop().time() <= 3 + 5  # b's own limit, not its start's
        assert world.events[-1] == "-a"
        assert "+c" not in world.events
        with pytest.raises(ChildNotFound):
            tree.child("a")
