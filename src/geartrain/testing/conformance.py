"""What every journal must keep, as tests: subclass `JournalConformance` and give it a `journal` fixture.

```python
class TestMyJournal(JournalConformance):
    @pytest.fixture
    async def journal(self) -> AsyncIterator[Journal]:
        journal = await MyJournal.open()
        yield journal
        await journal.aclose()
```

The fixture gives an empty, unclaimed journal per test. The suite needs pytest, hypothesis, and anyio's pytest
plugin in its automatic mode.
"""

from __future__ import annotations

import pytest

from geartrain.persistence import Journal
from geartrain.testing._journal_appends import AppendConformance
from geartrain.testing._journal_queries import QueryConformance

__all__ = ["JournalConformance"]


class JournalConformance(AppendConformance, QueryConformance):
    """The promises of `Journal`, one test each."""

    @pytest.fixture
    def journal(self) -> Journal:
        """Return an empty journal; a subclass says which."""
        raise NotImplementedError
