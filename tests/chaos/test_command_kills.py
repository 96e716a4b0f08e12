"""The examples end as if nobody had been killed, whenever their commands are."""

from __future__ import annotations

import pytest
from command_kills import examples, kill_example

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]

KILLS = 5


@pytest.mark.parametrize("name", examples())
def test_an_example_whose_commands_are_killed_ends_as_if_nobody_had_been(name: str) -> None:
    found = kill_example(name, KILLS, 1, print)

    assert found.wrong == []
    assert found.kills >= KILLS
