"""What becomes of a run whose process died, whose actor crashed, or that is set apart.

Rule 1: what was in progress in a process that is gone is lost; what is in progress while an actor restarts is not.
Rule 2: a process that dies while it moves a run counts against that run until an effect of it has brought something, or
a person has decided something about it (`_PROGRESS`). Only a death while the run was alone says anything about it.
Rule 3: a person who resumes a run lets its counts begin anew.
"""

from __future__ import annotations

from typing import Final

from geartrain.limits import RESTARTS_KEPT
from geartrain.machine import _events as events
from geartrain.machine._charging import charge_lost
from geartrain.machine._draft import Draft, Refused
from geartrain.machine._ending import end_if_idle, wait_anew
from geartrain.machine._events import ActorRestarted, EventBase, RunQuarantined, RunRecovered
from geartrain.machine._moves import (
    ask_again,
    ask_policy_again,
    go_on,
    lose_progress,
    rest_held,
    settle_calls,
    suspend,
)
from geartrain.machine._outside import EXTERNAL, awaits_reply
from geartrain.machine._states import HoldKind, RunState

# Verdicts and starts are none: a call that kills its process has them each time anew.
_PROGRESS: Final[frozenset[type[EventBase]]] = frozenset(
    {
        events.ContextPrepared,
        events.ContextFailed,
        events.ModelReplied,
        events.ModelFailed,
        events.TurnTaken,
        events.ApprovalDecided,
        events.ToolFinished,
        events.WriteInDoubt,
        events.CallSettled,
        events.CallAnswered,
        events.SubAgentEnded,
        events.ContextCompacted,
        events.CompactionFailed,
        events.HandedOff,
        events.HandoffFailed,
    }
)


def forget_deaths(draft: Draft, event: EventBase) -> None:
    """Forget the processes that died, once the run has come further."""
    if draft.run.unclean and type(event) in _PROGRESS:
        draft.set(unclean=0, alone=False, crashes_alone=0)


def forget_crashes(draft: Draft) -> None:
    """Count restarts and deaths anew."""
    draft.set(restarts=0, restarted_at=(), unclean=0, alone=False, crashes_alone=0)


def on_recovered(draft: Draft, event: RunRecovered) -> None:
    """Go on in another process: what was in progress is lost, and charged where it cost."""
    if event.attempt != draft.run.recoveries + 1:
        raise Refused(f"recovery {event.attempt} is not the next one", duplicate=event.attempt <= draft.run.recoveries)
    draft.set(recoveries=event.attempt, evaluations=draft.run.evaluations + 1)
    if not event.clean:
        alone = draft.run.alone
        draft.set(unclean=draft.run.unclean + 1, crashes_alone=draft.run.crashes_alone + alone)
    draft.set(alone=event.alone)
    outside = awaits_reply(draft.run, draft.spec) and draft.spec.limits.external_seconds is not None
    if draft.run.state is not RunState.SUSPENDED and not outside:
        draft.set(entered_at=draft.now)
    wait_anew(draft)
    interrupt(draft)


def interrupt(draft: Draft) -> None:
    """Count nothing as in progress any more, and find the place to go on from."""
    lose_progress(draft)
    ask_policy_again(draft, writes_only=True)
    run = draft.run
    if run.ending is not None:
        end_if_idle(draft)
        return
    match run.state:
        case RunState.MODEL_THINKING:
            _model_lost(draft)
        case RunState.COMPACT_OR_SAVE:
            charge_lost(draft, summary=True)
            if draft.stopped:
                draft.set(compacting=0)
                suspend(draft, RunState.COMPACT_OR_SAVE)
        case RunState.PREPARE_CONTEXT if draft.stopped:
            suspend(draft, RunState.PREPARE_CONTEXT)
        case RunState.WAIT_APPROVAL | RunState.EXECUTE_TOOL:
            settle_calls(draft)


def _model_lost(draft: Draft) -> None:
    """Ask the model again; one outside is still thinking, and is asked again only after a hold."""
    if draft.spec.model != EXTERNAL:
        ask_again(draft)
    elif draft.stopped:
        rest_held(draft)
    if draft.run.state is RunState.MODEL_THINKING:
        go_on(draft)


def on_actor_restarted(draft: Draft, event: ActorRestarted) -> None:
    """Count the restart; effects live on and nothing is lost."""
    kept = (*draft.run.restarted_at, draft.now)[-RESTARTS_KEPT:]
    draft.set(restarts=event.restarts, restarted_at=kept, resume_at=event.resume_at)


def on_quarantined(draft: Draft, event: RunQuarantined) -> None:
    """Set the run apart until a person decides; what is in progress is given up, save what goes on elsewhere."""
    if draft.run.held_by(HoldKind.QUARANTINED):
        raise Refused("it is quarantined already", duplicate=True)
    draft.hold(HoldKind.QUARANTINED, reason=f"{event.code}: {event.reason}", code=event.code)
    interrupt(draft)
