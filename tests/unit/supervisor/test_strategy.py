"""The tables of restart kinds and strategies, written out in full."""

from __future__ import annotations

import itertools

import pytest

from geartrain.supervisor import Member, Plan, Restart, Strategy, comes_back, plan_restart

CHILDREN = ("a", "b", "c")


@pytest.mark.parametrize(
    ("restart", "failed", "back"),
    [
        ("permanent", False, True),
        ("permanent", True, True),
        ("transient", False, False),
        ("transient", True, True),
        ("temporary", False, False),
        ("temporary", True, False),
    ],
)
def test_a_child_comes_back_after_these_ends(restart: str, failed: bool, back: bool) -> None:
    assert comes_back(Restart(restart), failed=failed) is back


# strategy, which one has exited: who is stopped, who starts.
PLANS = {
    ("one_for_one", "a"): ("", "a"),
    ("one_for_one", "b"): ("", "b"),
    ("one_for_one", "c"): ("", "c"),
    ("one_for_all", "a"): ("cb", "abc"),
    ("one_for_all", "b"): ("ca", "abc"),
    ("one_for_all", "c"): ("ba", "abc"),
    ("rest_for_one", "a"): ("cb", "abc"),
    ("rest_for_one", "b"): ("c", "bc"),
    ("rest_for_one", "c"): ("", "c"),
}


def test_the_table_of_plans_is_complete() -> None:
    assert set(PLANS) == set(itertools.product(map(str, Strategy), CHILDREN))


@pytest.mark.parametrize(("strategy", "exited"), PLANS)
def test_others_stop_right_to_left_and_all_start_left_to_right(strategy: str, exited: str) -> None:
    stop, start = PLANS[strategy, exited]

    plan = plan_restart(Strategy(strategy), [Member(name) for name in CHILDREN], exited, failed=True)

    assert plan == Plan(tuple(stop), tuple(start))


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(("restart", "failed"), list(itertools.product(Restart, [True, False])))
def test_nobody_is_disturbed_by_a_child_that_stays_down(strategy: Strategy, restart: Restart, failed: bool) -> None:
    members = [Member("a"), Member("b", restart), Member("c")]

    plan = plan_restart(strategy, members, "b", failed=failed)

    assert (plan == Plan()) is not comes_back(restart, failed=failed)


@pytest.mark.parametrize(
    ("strategy", "stop", "start"),
    [("one_for_one", "", "b"), ("one_for_all", "dca", "abd"), ("rest_for_one", "dc", "bd")],
)
def test_a_temporary_child_is_stopped_with_the_others_and_does_not_come_back(
    strategy: str, stop: str, start: str
) -> None:
    members = [Member("a"), Member("b"), Member("c", Restart.TEMPORARY), Member("d", Restart.TRANSIENT)]

    plan = plan_restart(Strategy(strategy), members, "b", failed=True)

    assert plan == Plan(tuple(stop), tuple(start))


@pytest.mark.parametrize("strategy", Strategy)
def test_what_was_down_before_stays_down(strategy: Strategy) -> None:
    members = [Member("a", up=False), Member("b", up=False), Member("c", up=False)]

    assert plan_restart(strategy, members, "b", failed=True) == Plan((), ("b",))
