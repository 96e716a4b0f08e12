"""Places for sub-agents' runs: how many of a tree, and of a node, are at work at once."""

from __future__ import annotations

from geartrain.limits import Limits
from geartrain.runtime._places import Places


def places(per_tree: int = 2, per_node: int = 3) -> Places:
    return Places(Limits(sub_agents_at_once_per_tree=per_tree, sub_agents_at_once_per_node=per_node))


def test_places_are_taken_up_to_the_limit_of_the_tree_and_of_the_node() -> None:
    free = places()

    taken = [free.take_if_free(f"{tree}{n}", tree) for tree in "ab" for n in range(3)]

    assert taken == [True, True, False, True, False, False]
    assert free.waiting == 3


def test_who_waits_follows_in_the_order_in_which_it_came_past_trees_that_are_full() -> None:
    free = places()
    for run_id in ("a0", "a1", "a2", "b0", "b1", "c0"):
        free.take_if_free(run_id, run_id[0])

    assert free.leave("b0") == ["b1"]
    assert free.take_if_free("b1", "b")
    assert free.leave("a0") == ["a2"]


def test_as_many_are_told_as_there_are_places_however_many_leave_at_once() -> None:
    free = places(per_tree=3, per_node=3)
    for n in range(6):
        free.take_if_free(f"a{n}", "a")

    assert free.leave("a0") == ["a3"]
    assert free.leave("a1") == ["a3", "a4"]
    assert free.leave("a1") == []


def test_one_that_comes_back_to_work_counts_and_is_never_kept_out() -> None:
    free = places(per_tree=1)
    free.take("a0", "a")
    free.take("a1", "a")

    assert not free.take_if_free("a2", "a")
    assert free.leave("a0") == []
    assert free.leave("a1") == ["a2"]


def test_one_that_waits_and_goes_away_is_forgotten() -> None:
    free = places(per_tree=1)
    free.take("a0", "a")
    free.take_if_free("a1", "a")
    assert free.waiting == 1

    assert free.leave("a1") == []
    assert free.waiting == 0
