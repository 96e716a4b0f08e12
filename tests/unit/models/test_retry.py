from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import InternalError, MailboxFull
from geartrain.models import ContextTooLong, ModelRejected, ModelUnavailable, backoff_seconds, is_retryable


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30), (10_000, 30), (0, 1)]
)
def test_the_wait_doubles_from_one_second_to_thirty(attempt: int, seconds: float) -> None:
    assert backoff_seconds(attempt, jitter=0) == seconds


def test_full_jitter_takes_half_of_the_wait_away() -> None:
    assert backoff_seconds(3, jitter=1) == 2


@pytest.mark.parametrize(
    ("wish", "jitter", "seconds"), [(7, 0, 7), (7, 1, 7.7), (0, 0, 0), (3_600, 0, 120), (0.5, 0, 0.5)]
)
def test_a_wish_of_the_provider_is_obeyed_up_to_two_minutes(wish: float, jitter: float, seconds: float) -> None:
    assert backoff_seconds(6, retry_after=wish, jitter=jitter) == pytest.approx(seconds)


@pytest.mark.parametrize("wish", [-1.0, math.nan, math.inf, -math.inf])
def test_a_wish_that_makes_no_sense_counts_as_none(wish: float) -> None:
    assert backoff_seconds(2, retry_after=wish, jitter=0) == 2


@given(st.integers(), st.none() | st.floats(), st.floats(allow_nan=False))
def test_a_wait_is_always_between_zero_and_two_minutes_and_a_tenth(
    attempt: int, wish: float | None, jitter: float
) -> None:
    assert 0 <= backoff_seconds(attempt, retry_after=wish, jitter=jitter) <= 132.001


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (ModelUnavailable("m", "busy"), True),
        (MailboxFull("m", 1), True),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (ModelRejected("m", "no"), False),
        (ContextTooLong("m", "long"), False),
        (InternalError(), False),
        (ValueError(), False),
        (asyncio.CancelledError(), False),
    ],
)
def test_only_the_fault_of_the_world_is_tried_again(error: BaseException, retryable: bool) -> None:
    assert is_retryable(error) is retryable
