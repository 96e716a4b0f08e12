from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from geartrain.persistence import Journal
from geartrain.persistence.sqlite import SqliteJournal
from geartrain.testing.conformance import JournalConformance


class TestSqliteJournal(JournalConformance):
    @pytest.fixture
    async def journal(self, tmp_path: Path) -> AsyncIterator[Journal]:
        journal = await SqliteJournal.open(tmp_path / "runs.db")
        yield journal
        await journal.aclose()
