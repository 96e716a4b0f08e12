"""The life of a run, as a table: which event is possible in which state, and what handles it.

Rule 1: whatever decides which state follows which event is reached from this table, and from nowhere else.
Rule 2: no clock, no randomness, no I/O. The same events always give the same run; recovery and replay rest on that.
Rule 3: an event that is not in its state's row is refused: nothing changes and nothing is stored.
Rule 4: DECIDE_ACTION and OBSERVE are passed through within one step and never rest, so their rows are empty.

    CREATED ─▶ PREPARE_CONTEXT ─▶ MODEL_THINKING ─▶ DECIDE_ACTION ─▶ FINISHED
                                      ▲                  │
                                      │                  ▼
                COMPACT_OR_SAVE ◀─ OBSERVE ◀─ EXECUTE_TOOL ◀─ WAIT_APPROVAL

Rule 5: once the cause of its end is set, a run takes only the results of what is in progress (`WHILE_ENDING`).

SUSPENDED is entered from wherever nothing is in progress and a hold is open, and left when the set of holds is empty.
FAILED and CANCELLED may follow any live state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from geartrain.machine import _call_handlers as calls
from geartrain.machine import _crashes as crashes
from geartrain.machine import _events as events
from geartrain.machine import _handlers as life
from geartrain.machine import _named_events as named
from geartrain.machine._draft import Draft
from geartrain.machine._states import RunState

Handler = Callable[[Draft, Any], None]
Row = Mapping[type[events.EventBase], Handler]

# Possible in every live state.
_ALWAYS: Final[dict[type[events.EventBase], Handler]] = {
    events.InputReceived: life.on_input,
    events.PauseRequested: life.on_pause,
    events.RunResumed: life.on_resumed,
    events.CancelRequested: life.on_cancel,
    events.DeadlinePassed: life.on_deadline,
    events.GraceElapsed: life.on_grace,
    events.BudgetRaised: life.on_budget_raised,
    events.TimerFired: life.on_timer,
    events.RunRecovered: crashes.on_recovered,
    events.ActorRestarted: crashes.on_actor_restarted,
    events.RunQuarantined: crashes.on_quarantined,
    events.EventPublished: named.on_published,
    events.EventAwaited: named.on_awaited,
}

# Possible while calls are open: an approval is accepted from when its request is visible, whatever the state.
_CALLS: Final[dict[type[events.EventBase], Handler]] = {
    events.PermissionsEvaluated: calls.on_permissions,
    events.ApprovalDecided: calls.on_decided,
    events.ApprovalExpired: calls.on_expired,
    events.ToolStarted: calls.on_tool_started,
    events.ToolFinished: calls.on_tool_finished,
    events.WriteInDoubt: calls.on_in_doubt,
    events.CallSettled: calls.on_settled,
    events.CallAnswered: calls.on_answered,
    events.SubAgentEnded: calls.on_sub_agent_ended,
    events.EventHeard: named.on_heard,
    events.ShareRaised: calls.on_share_raised,
}

ROWS: Final[Mapping[RunState, Row]] = MappingProxyType(
    {
        RunState.CREATED: {events.RunStarted: life.on_started},
        RunState.PREPARE_CONTEXT: {
            events.ContextPrepared: life.on_context_prepared,
            events.ContextFailed: life.on_context_failed,
            events.HandedOff: life.on_handed_off,
            events.HandoffFailed: life.on_handoff_failed,
            **_ALWAYS,
        },
        RunState.MODEL_THINKING: {
            events.ModelReplied: life.on_model_replied,
            events.ModelFailed: life.on_model_failed,
            events.TurnTaken: life.on_turn_taken,
            **_CALLS,  # only agents that are consulted after each result have calls open here
            **_ALWAYS,
        },
        RunState.DECIDE_ACTION: {},
        RunState.WAIT_APPROVAL: {**_CALLS, **_ALWAYS},
        RunState.EXECUTE_TOOL: {**_CALLS, **_ALWAYS},
        RunState.OBSERVE: {},
        RunState.COMPACT_OR_SAVE: {
            events.ContextCompacted: life.on_compacted,
            events.CompactionFailed: life.on_compaction_failed,
            **_ALWAYS,
        },
        RunState.SUSPENDED: {events.TurnTaken: life.on_turn_taken, **_CALLS, **_ALWAYS},
        # Ended: an empty row, not a missing one, so that the table names every state.
        RunState.FINISHED: {},
        RunState.FAILED: {},
        RunState.CANCELLED: {},
    }
)

# A run that is ending takes the results of what is in progress and what ends it; nothing starts any more. A second
# cause of the end is refused as known already.
WHILE_ENDING: Final[frozenset[type[events.EventBase]]] = frozenset(
    {
        events.ToolFinished,
        events.WriteInDoubt,
        events.CallAnswered,  # of a write that somebody outside has begun
        events.SubAgentEnded,
        events.GraceElapsed,
        events.CancelRequested,
        events.DeadlinePassed,
        events.RunRecovered,
        events.ActorRestarted,
        events.RunQuarantined,
    }
)


def possible(state: RunState, *, ending: bool = False) -> tuple[str, ...]:
    """Return the names of the events that are possible in *state*, or of those still possible while *ending*."""
    return tuple(event.__name__ for event in ROWS[state] if not ending or event in WHILE_ENDING)
