from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import InvalidValue
from geartrain.supervisor import NO_BACKOFF, Backoff


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        (Backoff(1, 2, 10, 0.0), [1, 2, 4, 8, 10, 10]),
        (Backoff(0.5, 3, 100, 0.0), [0.5, 1.5, 4.5, 13.5, 40.5, 100]),
        (Backoff(2, 1, 2, 0.0), [2, 2, 2]),
        (Backoff(0, 2, 10, 0.0), [0, 0, 0]),
        (NO_BACKOFF, [0, 0, 0]),
    ],
)
def test_each_wait_is_longer_by_the_factor_up_to_the_longest(backoff: Backoff, waits: list[float]) -> None:
    assert [backoff.wait_seconds(attempt, 0.7) for attempt in range(1, len(waits) + 1)] == waits


@pytest.mark.parametrize(
    ("jitter", "chance", "wait"),
    [(0, 1, 4), (0.25, 0, 4), (0.25, 1, 3), (0.5, 0.5, 3), (1, 1, 0), (0.5, 7, 2), (0.5, -7, 4)],
)
def test_chance_takes_away_up_to_the_share(jitter: float, chance: float, wait: float) -> None:
    assert Backoff(1, 2, 10, jitter).wait_seconds(3, chance) == pytest.approx(wait)


@pytest.mark.parametrize(
    ("attempt", "calm_seconds", "following"),
    [(0, 0, 1), (1, 0, 2), (1, 59.9, 2), (5, 59.9, 6), (5, 60, 1), (5, 1e9, 1), (0, 60, 1), (-3, 0, 1)],
)
def test_a_calm_time_makes_the_next_wait_the_first_again(attempt: int, calm_seconds: float, following: int) -> None:
    assert Backoff(reset_seconds=60).next_attempt(attempt, calm_seconds) == following


def test_the_hundred_thousandth_wait_is_still_the_longest() -> None:
    assert Backoff(1, 10, 30, 0).wait_seconds(100_000, 0) == 30
    assert Backoff(0, 10, 30, 0).wait_seconds(100_000, 0) == 0


@given(
    st.builds(
        Backoff,
        st.floats(0, 10),
        st.floats(1, 10),
        st.floats(10, 100),
        st.floats(0, 1),
        st.floats(0, 100),
    ),
    st.integers(1, 2_000),
    st.floats(0, 1),
)
def test_a_wait_is_never_longer_than_the_longest_nor_shorter_than_chance_allows(
    backoff: Backoff, attempt: int, chance: float
) -> None:
    whole, wait = backoff.wait_seconds(attempt, 0), backoff.wait_seconds(attempt, chance)

    assert whole * (1 - backoff.jitter) <= wait <= whole <= backoff.max_seconds
    assert whole <= backoff.wait_seconds(attempt + 1, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial_seconds": -1},
        {"initial_seconds": math.nan},
        {"initial_seconds": "1"},
        {"factor": 0.5},
        {"factor": math.inf},
        {"max_seconds": 0.01},
        {"max_seconds": math.inf},
        {"jitter": 1.1},
        {"jitter": -0.1},
        {"jitter": True},
        {"reset_seconds": -1},
        {"reset_seconds": None},
    ],
)
def test_a_backoff_that_is_none_is_refused_by_name(wrong) -> None:
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Backoff(**wrong)
