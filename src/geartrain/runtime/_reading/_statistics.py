"""All runs of a store together: how many in which state, what went wrong, what they used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from geartrain.machine import KIND_OF_CODE, RunState
from geartrain.persistence import Journal, StoreStatistics

_USED: Final = ("turn_count", "input_tokens", "output_tokens", "tool_calls", "tool_failures", "active_seconds", "cost")
_ERROR: Final = "error"
OTHER: Final = "other"


class RunTotals(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of a store together, as of the moment of asking.

    `by_state` names every state in which a run is. `errors_by_kind` and `errors_by_code` count the runs that did not
    finish, by the reason of their end; `cost` is in the unit of the agents' prices. `moved_at` is when a run was last
    moved (None: there is none), `set_apart` how many nothing moves as they cannot be read.
    """

    runs: int
    by_state: Mapping[str, int]
    errors_by_kind: Mapping[str, int]
    errors_by_code: Mapping[str, int]
    turn_count: int
    input_tokens: int
    output_tokens: int
    tool_calls: int
    tool_failures: int
    active_seconds: float
    cost: float = 0.0
    set_apart: int
    moved_at: float | None

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @classmethod
    def of(cls, store: StoreStatistics) -> RunTotals:
        """Return what a store says of its runs, asked as `counted` asks it."""
        codes = dict(sorted(store.tallies[_ERROR].items()))
        kinds: dict[str, int] = {}
        for code, count in codes.items():
            kind = _KINDS.get(code, OTHER)  # one of a newer version
            kinds[kind] = kinds.get(kind, 0) + count
        used = {name: int(value) for name, value in store.sums.items()}
        return cls(
            runs=store.runs,
            by_state={str(state): store.runs_by_state[state] for state in sorted(store.runs_by_state, key=_in_order)},
            errors_by_kind=kinds,
            errors_by_code=codes,
            turn_count=used["turn_count"],
            input_tokens=used["input_tokens"],
            output_tokens=used["output_tokens"],
            tool_calls=used["tool_calls"],
            tool_failures=used["tool_failures"],
            active_seconds=round(store.sums["active_seconds"], 3),
            cost=round(store.sums["cost"], 6),
            set_apart=store.marked,
            moved_at=store.updated_at,
        )


async def counted(journal: Journal) -> StoreStatistics:
    """Return how a store is doing, with all that is to be told of its runs: one look at what is beside the journals."""
    return await journal.statistics(sums=_USED, tallies=(_ERROR,))


_KINDS: Final[Mapping[str, str]] = {str(code): str(kind) for code, kind in KIND_OF_CODE.items()}
_STATES: Final = tuple(RunState)


def _in_order(state: str) -> tuple[int, str]:
    return (_STATES.index(RunState(state)), "") if state in RunState.__members__ else (len(_STATES), state)
