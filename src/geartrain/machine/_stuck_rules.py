"""What an agent wants done about a run that does not get on: data, recorded with its spec.

A run does not get on when a wait outlasts its limit (it dwells), or when turns bring nothing new. Waits for people, for
sub-agents and for whatever is outside of this process are no dwell: they have limits of their own.
"""

from __future__ import annotations

import math
from typing import Final, Literal, get_args

from geartrain.errors import InvalidValue
from geartrain.limits import UNLIMITED, Unlimited
from geartrain.machine._states import RunState
from geartrain.machine._values import Value

OnDwell = Literal["report", "resend", "fail", "suspend"]
OnNoProgress = Literal["report", "nudge", "fail", "suspend"]
# The states in which effects of ours are awaited.
DWELLING: Final = (
    RunState.PREPARE_CONTEXT,
    RunState.MODEL_THINKING,
    RunState.WAIT_APPROVAL,
    RunState.EXECUTE_TOOL,
    RunState.COMPACT_OR_SAVE,
)
_UNLIMITED_TOO: Final = ("repeats", "idle_turns", "idle_tokens")


class StuckRules(Value, frozen=True, kw_only=True, omit_defaults=False):
    """When a run counts as stuck, and what is then done about it.

    `dwell` gives states (EXECUTE_TOOL, …) a limit in seconds: from when the state was entered, in EXECUTE_TOOL from
    when the call began; waiting for a place does not count. Without one, an answer is overdue `limits.dwell_seconds`
    after its effect's own limit.

    `on_dwell` says what becomes of an overdue answer. "resend" takes it for lost and asks once more, as the next
    attempt, the lost one charged: a model up to its attempts, context providers and each read `resends` times, after
    which they fail as they would by themselves; a summary is left out. "fail" ends the run, "suspend" holds it until
    somebody resumes it, "report" only names it. Whatever is done, a write that has started is not started again: it is
    in doubt, and goes the way of all doubts.

    No progress is `repeats` turns in a row with the same calls, the same arguments and the same results; or, where they
    are given, `idle_turns` turns or `idle_tokens` tokens without a turn that differs from each of the newest before it.
    `on_no_progress` "nudge" tells the model so, up to `nudges` times until there is something new, and then fails the
    run (`no_progress`); the others are as above. What is only reported is reported once.

    Raises:
        InvalidValue: A limit is none, a state has none, or an action is none.
    """

    dwell: dict[str, float] = {}
    on_dwell: OnDwell = "resend"
    resends: int = 2
    repeats: int | Unlimited = 8
    idle_turns: int | Unlimited = UNLIMITED
    idle_tokens: int | Unlimited = UNLIMITED
    on_no_progress: OnNoProgress = "nudge"
    nudges: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.dwell, dict):
            raise InvalidValue("dwell", 'a dict from states to seconds, as {"EXECUTE_TOOL": 60}', self.dwell)
        for state, seconds in self.dwell.items():
            if state not in DWELLING:
                raise InvalidValue("a state in `dwell`", f"one of {', '.join(DWELLING)}", state)
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
                raise InvalidValue(f"dwell[{state!r}]", "seconds, more than 0 and finite", seconds)
        for name, least in (("repeats", 2), ("idle_turns", 1), ("idle_tokens", 1), ("resends", 0), ("nudges", 0)):
            value = getattr(self, name)
            if isinstance(value, Unlimited) and name in _UNLIMITED_TOO:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidValue(name, f"a whole number, at least {least}", value)
        for name, known in (("on_dwell", get_args(OnDwell)), ("on_no_progress", get_args(OnNoProgress))):
            if getattr(self, name) not in known:
                raise InvalidValue(name, " or ".join(map(repr, known)), getattr(self, name))


class Acted(Value, frozen=True, kw_only=True):
    """The newest thing that was done about a run that did not get on: what, about what, since and when.

    `action` is the word of the rules; "fail" also once nudging is over.
    """

    cause: Literal["lost_reply", "dead_effect", "dwell", "no_progress"]
    action: str
    about: str
    since: float
    time: float
