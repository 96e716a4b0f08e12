"""The page about the machine is made from the table and is not stale."""

from __future__ import annotations

from pathlib import Path

from geartrain.machine import EDGES, ROWS, RunState, diagram, page

PAGE = Path(__file__).parents[3] / "docs" / "state-machine.md"


def test_the_page_of_the_state_machine_is_not_stale() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "docs/state-machine.md is stale: run make docs"


def test_the_page_names_every_state_and_what_is_possible_in_it() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| ")][1:]

    assert [row.split(" | ")[0].strip("| ") for row in rows] == list(map(str, RunState))
    for state, row in zip(RunState, rows, strict=True):
        assert all(event.__name__ in row for event in ROWS[state])


def test_the_diagram_draws_every_edge() -> None:
    lines = diagram().splitlines()

    for before, afters in EDGES.items():
        for after in afters:
            assert f"    {before} --> {after}" in lines
    assert set(EDGES) == set(RunState)
