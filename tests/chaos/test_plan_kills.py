"""The examples of plans give the same answer whenever their process is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_kills import TEXTS, rounds

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(180)]


@pytest.mark.parametrize("name", TEXTS)
def test_an_example_killed_at_any_moment_gives_the_same_answer(name: str, tmp_path: Path) -> None:
    assert rounds(name, tmp_path, kills=3, seed=1) == []
