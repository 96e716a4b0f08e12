"""Every journal of every released format leads the same way for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from goldens import HERE, compared

from geartrain.machine import (
    Difference,
    Event,
    Run,
    Specs,
    decode_event,
    decode_spec,
    fold,
    split_path,
)

JOURNALS = sorted(HERE.glob("*/*.jsonl"))


def _read(path: Path) -> tuple[Run, Specs, list[tuple[Event, tuple[str, ...]]], dict[str, Any]]:
    head, *entries, foot = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    specs = {key: decode_spec(json.dumps(spec).encode()) for key, spec in head["specs"].items()}
    events = [(decode_event(e["type"], e["version"], e["body"].encode()), split_path(e["path"])) for e in entries]
    return Run(id=head["run"]), specs, events, foot


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_golden_journal_leads_along_its_recorded_path_to_its_recorded_end(path: Path) -> None:
    run, specs, events, foot = _read(path)

    found = fold(run, events, specs)

    assert isinstance(found, Run), found
    assert (found.state, compared(found, path.parent.name)) == (foot["state"], foot["digest"])


def test_the_golden_journals_hold_every_kind_of_event() -> None:
    kinds = {type(event) for path in JOURNALS for event, _ in _read(path)[2]}

    assert kinds == set(get_args(Event))


def test_a_journal_that_leads_another_way_is_seen_at_its_first_step() -> None:
    run, specs, events, _ = _read(JOURNALS[0])
    events[1] = (events[1][0], ("FINISHED",))

    found = fold(run, events, specs)

    assert isinstance(found, Difference)
    assert (found.seq, found.recorded) == (2, ("FINISHED",))


def test_a_journal_with_an_event_that_cannot_be_is_seen_there() -> None:
    run, specs, events, _ = _read(JOURNALS[0])

    found = fold(run, [events[1]], specs)

    assert isinstance(found, Difference)
    assert "has not started" in found.reason
