from __future__ import annotations

import pickle

import pytest

from geartrain import persistence
from geartrain.errors import GeartrainError, ResourceError, UsageError
from geartrain.persistence import (
    CommitUnknown,
    DuplicateEvent,
    JournalConflict,
    OwnershipLost,
    RunCorrupt,
    RunNotEnded,
    StoreBusy,
    StoreClosed,
    StoreFailed,
    StoreReadOnly,
    StoreUnusable,
)

ERRORS = [
    (JournalConflict("r", 3, 4), ResourceError, "run 'r': append after event 3, but the last one is 4"),
    (DuplicateEvent("r", "e", "d", 3), UsageError, "run 'r': event id 'e' is stored already (digest 'd')"),
    (OwnershipLost(1, 2), ResourceError, "claim of epoch 1: not in force (newest epoch of this store: 2)"),
    (StoreFailed("x.db", "append", "disk full"), ResourceError, "store 'x.db': append failed: disk full"),
    (CommitUnknown("x.db", "append", "why"), ResourceError, "store 'x.db': append has an unknown outcome: why"),
    (StoreBusy("x.db", 42, 0.0), ResourceError, "store 'x.db': owned by process 42 since 1970-01-01T00:00:00+00:00"),
    (StoreBusy("x.db", None, None), ResourceError, "store 'x.db': owned by another owner; close it there"),
    (StoreUnusable("x.db", "is a folder"), UsageError, "store 'x.db': is a folder"),
    (StoreReadOnly("x.db", "append"), UsageError, "append: store 'x.db' is open for reading only"),
    (StoreClosed("x.db", "append"), UsageError, "append: store 'x.db' is closed"),
    (RunCorrupt("r", "why"), ResourceError, "run 'r': damaged in the store: why"),
    (RunNotEnded("r", "OBSERVE"), UsageError, "delete run 'r': it is in OBSERVE"),
]


@pytest.mark.parametrize(("error", "family", "message"), ERRORS)
def test_an_error_says_what_it_knows_and_survives_pickling(
    error: GeartrainError, family: type[GeartrainError], message: str
) -> None:
    again = pickle.loads(pickle.dumps(error))

    assert isinstance(error, family)
    assert str(error).startswith(message)
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_every_error_of_the_package_is_in_the_table() -> None:
    exported = {getattr(persistence, name) for name in persistence.__all__}

    assert {type(error) for error, _, _ in ERRORS} == {
        each for each in exported if isinstance(each, type) and issubclass(each, GeartrainError)
    }
