"""How many worlds are tried: some by default, very many under HYPOTHESIS_PROFILE=chaos."""

from __future__ import annotations

import pytest
from machine_world import CHAOS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHAOS:
        for item in items:
            item.add_marker(pytest.mark.timeout(7_200))
