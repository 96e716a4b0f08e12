"""What is asked of a supervisor while something else is under way: the later word counts, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest
from tree_world import World

from geartrain.actors import ActorStopped


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_child_that_was_asked_to_stop_stays_down_if_another_crashes_before_its_turn(strategy: str) -> None:
    world = World(stop_seconds={"c": 1, "b": 1})
    async with world.tree(world.supervisor("a", "b", "c", strategy=strategy)) as tree:
        stops = [asyncio.create_task(tree.stop_child(name)) for name in "cb"]  # `b` waits for its turn
        await asyncio.sleep(0.5)
        tree.child("a").send_nowait(ValueError())

        await asyncio.wait_for(asyncio.gather(*stops), 10)
        await asyncio.sleep(10)
        assert [str(child.state) for child in tree.children()] == ["up", "down", "down"]


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all"])
async def test_whoever_stops_a_child_does_not_wait_for_ever_if_somebody_else_has_it_restarted(strategy: str) -> None:
    world = World(stop_seconds={"a": 1})
    async with world.tree(world.supervisor("a", "b", strategy=strategy)) as tree:
        stop = asyncio.create_task(tree.stop_child("a"))
        await asyncio.sleep(0.5)
        await tree.restart_child("a")

        await asyncio.wait_for(stop, 10)
        assert world.drain() == ["-a", "+a"]
        assert [str(child.state) for child in tree.children()] == ["up", "up"]


async def test_whoever_restarts_a_child_is_told_that_somebody_else_has_stopped_it() -> None:
    world = World(stop_seconds={"a": 1})
    async with world.tree(world.supervisor("a", "b")) as tree:
        restart = asyncio.create_task(tree.restart_child("a"))
        await asyncio.sleep(0.5)
        await tree.stop_child("a")

        with pytest.raises(ActorStopped):
            await asyncio.wait_for(restart, 10)
        assert [str(child.state) for child in tree.children()] == ["down", "up"]
