"""When a run must end, as data: never in a prompt, never in a closure.

A condition is a frozen struct; `|` holds when either does, `&` when both do. The conditions of a run's budget are
made from its `Budget`; `AgentSpec.stop_when` adds a user's own.
"""

from __future__ import annotations

from typing import Final

import msgspec

from geartrain.machine._states import ReasonCode

# Seconds since 1970 in a double have steps of a quarter of a microsecond. A timer set for the very moment at which the
# active seconds are used up must find them used up, or it would be set again for the same moment.
CLOCK_GRAIN: Final = 1e-6


class Measured(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What conditions look at: how much a run has used so far, and whether it is about to ask the model."""

    before_call: bool = True
    turns: int = 0
    seconds: float = 0.0
    tool_failures: int = 0
    tokens: int = 0
    cost: float = 0.0
    tool_calls: int = 0
    called: tuple[str, ...] = ()


class _Condition(msgspec.Struct, frozen=True, tag=True):
    """A condition; combine with `|` and `&`."""

    def __or__(self, other: Condition) -> AnyOf:
        return AnyOf((self, other))  # type: ignore[arg-type]

    def __and__(self, other: Condition) -> AllOf:
        return AllOf((self, other))  # type: ignore[arg-type]


class TurnsReached(_Condition, frozen=True):
    """Holds when a further model call would be one too many; looked at before a model call only."""

    limit: int

    def met(self, used: Measured) -> ReasonCode | None:
        """Return the code that this condition ends a run with, if it holds."""
        return ReasonCode.MAX_TURNS_EXCEEDED if used.before_call and used.turns >= self.limit else None


class SecondsReached(_Condition, frozen=True):
    """Holds when the active time is used up."""

    limit: float

    def met(self, used: Measured) -> ReasonCode | None:
        """Return the code that this condition ends a run with, if it holds."""
        return ReasonCode.TIMEOUT if used.seconds >= self.limit - CLOCK_GRAIN else None


class ToolFailuresReached(_Condition, frozen=True):
    """Holds when so many calls have failed."""

    limit: int

    def met(self, used: Measured) -> ReasonCode | None:
        """Return the code that this condition ends a run with, if it holds."""
        return ReasonCode.TOO_MANY_TOOL_FAILURES if used.tool_failures >= self.limit else None


class TokensReached(_Condition, frozen=True):
    """Holds when so many tokens, in and out together, are used."""

    limit: int

    def met(self, used: Measured) -> ReasonCode | None:
        """Return the code that this condition ends a run with, if it holds."""
        return ReasonCode.TOKEN_BUDGET_EXCEEDED if used.tokens >= self.limit else None


class CostReached(_Condition, frozen=True):
    """Holds when the model calls have cost so much."""

    limit: float

    def met(self, used: Measured) -> ReasonCode | None:
        """Return the code that this condition ends a run with, if it holds."""
        return ReasonCode.COST_BUDGET_EXCEEDED if used.cost >= self.limit else None


class ToolCallsReached(_Condition, frozen=True):
    """Holds when so many calls were let through; looked at before a model call only: those calls still run."""

    limit: int

    def met(self, used: Measured) -> ReasonCode | None:
        """Return the code that this condition ends a run with, if it holds."""
        met = used.before_call and used.tool_calls >= self.limit
        return ReasonCode.TOOL_CALL_BUDGET_EXCEEDED if met else None


class ToolCalled(_Condition, frozen=True):
    """Holds when a call of that tool in the newest turn went well."""

    tool: str

    def met(self, used: Measured) -> ReasonCode | None:
        """Return the code that this condition ends a run with, if it holds."""
        return ReasonCode.CONDITION_MET if self.tool in used.called else None


class AnyOf(_Condition, frozen=True):
    """Holds when one of its conditions does; the first that holds names the code."""

    conditions: tuple[Condition, ...]

    def met(self, used: Measured) -> ReasonCode | None:
        """Return the code that this condition ends a run with, if it holds."""
        return next((code for condition in self.conditions if (code := condition.met(used))), None)


class AllOf(_Condition, frozen=True):
    """Holds when all of its conditions do; the first of them names the code."""

    conditions: tuple[Condition, ...]

    def met(self, used: Measured) -> ReasonCode | None:
        """Return the code that this condition ends a run with, if it holds."""
        codes = [condition.met(used) for condition in self.conditions]
        return codes[0] if codes and all(codes) else None


Condition = (
    TurnsReached
    | SecondsReached
    | ToolFailuresReached
    | TokensReached
    | CostReached
    | ToolCallsReached
    | ToolCalled
    | AnyOf
    | AllOf
)
