from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import InvalidValue
from geartrain.supervisor import RestartLimit


def allowed(limit: RestartLimit, times: list[float]) -> list[bool]:
    history: tuple[float, ...] = ()
    answers = []
    for now in times:
        history, is_allowed = limit.restarted(history, now)
        answers.append(is_allowed)
    return answers


@pytest.mark.parametrize(
    ("restarts", "within_seconds", "times", "answers"),
    [
        (0, 60, [0, 1_000], "no no"),
        (1, 5, [0, 5, 5.1], "yes no yes"),  # exactly as old as the window is long: still counts
        (1, 5, [0, 5.1, 10.2], "yes yes yes"),
        (3, 60, [0, 0, 0, 0], "yes yes yes no"),
        (3, 60, [0, 30, 60, 60.5, 61], "yes yes yes yes no"),
        (3, 60, [0, 1, 2, 60.5, 61, 61.5], "yes yes yes yes no yes"),
        (2, math.inf, [0, 1e9, 2e9], "yes yes no"),
        (2, 10, [100, 50, 50], "yes yes no"),  # the clock was set back: nothing is forgotten
    ],
)
def test_so_many_restarts_are_allowed_within_any_window_and_not_one_more(
    restarts: int, within_seconds: float, times: list[float], answers: str
) -> None:
    told = allowed(RestartLimit(restarts, within_seconds), times)

    assert " ".join("yes" if answer else "no" for answer in told) == answers


def test_a_refused_restart_does_not_count() -> None:
    assert RestartLimit(1, 10).restarted((5.0,), 9.0) == ((5.0,), False)


@given(
    st.integers(0, 5),
    st.floats(0.1, 100),
    st.lists(st.floats(0, 50), max_size=60),
)
def test_no_window_ever_holds_more_restarts_than_allowed_and_the_history_stays_small(
    restarts: int, within_seconds: float, pauses: list[float]
) -> None:
    limit, history, now, done = RestartLimit(restarts, within_seconds), (), 0.0, []
    for pause in pauses:
        now += pause
        history, is_allowed = limit.restarted(history, now)
        assert len(history) <= restarts
        if is_allowed:
            done.append(now)
        within = [at for at in done if at >= now - within_seconds]
        assert len(within) <= restarts
        assert is_allowed or len(within) == restarts  # and none is refused without need


@pytest.mark.parametrize(
    ("restarts", "within_seconds"),
    [(-1, 60), (1.5, 60), (True, 60), ("3", 60), (None, 60), (3, 0), (3, -1), (3, math.nan), (3, None), (3, True)],
)
def test_a_limit_that_is_none_is_refused(restarts, within_seconds) -> None:
    with pytest.raises(InvalidValue, match=r"restarts|within_seconds"):
        RestartLimit(restarts, within_seconds)
