"""Random trees of runs, killed, cancelled, paused, asked about and out of budget: what must hold of each holds."""

from __future__ import annotations

import pytest
from kin_world import TreeWorld


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_happens_to_a_tree_it_ends_whole_and_its_ledger_is_right(seed: int) -> None:
    """AP-4, BU-5, BU-7, JR-1 over trees; `make tree-sweep` plays many more."""
    seen = await TreeWorld(seed).play()

    assert seen.violations == []
