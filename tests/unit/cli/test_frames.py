"""What `step` says of one step."""

from __future__ import annotations

from geartrain.cli._frames import _changes
from geartrain.machine import Hold, HoldKind, Run


def test_of_what_a_run_has_several_of_only_those_are_told_that_came_and_went() -> None:
    one, two, three = (Hold(kind=HoldKind.APPROVAL, call_id=f"t1.c{n}", reason="changes something") for n in (1, 2, 3))

    changes = list(_changes(Run(id="r-1", holds=(one, two)), Run(id="r-1", holds=(two, three), turn_count=2)))

    assert changes == ["holds - approval(t1.c1)", "holds + approval(t1.c3)", "turn_count: 0 → 2"]
