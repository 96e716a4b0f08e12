from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from geartrain.persistence import Journal, MemoryJournal
from geartrain.testing.conformance import JournalConformance


class TestMemoryJournal(JournalConformance):
    @pytest.fixture
    async def journal(self) -> AsyncIterator[Journal]:
        journal = MemoryJournal()
        yield journal
        await journal.aclose()
