"""Each store that a runtime may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runtime_world import Ledger, Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind."""
    return Store(tmp_path / "runs.db" if request.param == "sqlite" else None)


@pytest.fixture
def memory() -> Store:
    """A store in memory, for what does not depend on the store."""
    return Store()


@pytest.fixture
def ledger() -> Any:
    """An outside world."""
    return Ledger()
