"""Waits for what happens elsewhere: a model or a tool that somebody outside answers, a sub-agent's run.

Rule 1: nothing here works on such a wait, so nothing of it is lost with the process, and no time in it is active time.
Rule 2: a run that waits for nothing else rests, as a suspended one does: it needs no memory and no recovery.
Rule 3: journals from before `external_seconds` was recorded are read by the rules of their time: their outside waits
count as active time, and an external write is not started before somebody says so.
"""

from __future__ import annotations

from typing import Final

from geartrain.machine._commands import CallModel, Command, RunCall
from geartrain.machine._run import Call, Run
from geartrain.machine._spec import AgentSpec
from geartrain.machine._states import ENDED, IN_PROGRESS, RUNNING, STARTED, STOPPING, UNDECIDED, RunState

# The name of the model whose turns somebody outside takes.
EXTERNAL: Final = "external"
# Calls of which something is or may be at work: what is asked of a person, waits for its place, or is done is not.
_MOVING: Final = IN_PROGRESS | UNDECIDED


def awaits_reply(run: Run, spec: AgentSpec) -> bool:
    """Whether somebody outside is to take the model's turn."""
    return run.state is RunState.MODEL_THINKING and spec.model == EXTERNAL and run.ending is None


def awaits_answer(call: Call) -> bool:
    """Whether somebody outside is to answer this call: it is open, and no tool of ours runs for it."""
    return call.external and (call.status is RUNNING or call.status is STARTED)


def is_outside(command: Command, spec: AgentSpec) -> bool:
    """Whether somebody outside carries *command* out, so that there is nothing to do for it here."""
    match command:
        case RunCall():
            return command.external and command.mode == "run"
        case CallModel():
            return spec.model == EXTERNAL
        case _:
            return False


def starts_outside(call: Call, spec: AgentSpec) -> bool:
    """Whether a write is in somebody's hands outside as soon as it is open: nobody will tell us when it begins."""
    return call.external and call.barrier and spec.limits.external_seconds is not None


def runs_again(call: Call, spec: AgentSpec) -> bool:
    """Whether a write of unknown outcome is run again under its key; one outside is not ours to run."""
    return call.idempotent and not call.external and call.attempt < spec.limits.write_attempts


def bounded(spec: AgentSpec) -> bool:
    """Whether sub-agents have shares and bounds, and waiting for them is no work: of all but old specs."""
    return spec.limits.sub_agents_at_once is not None


def waits_outside(run: Run, spec: AgentSpec) -> bool:
    """Whether a run that is neither suspended nor ending waits for what happens elsewhere, and for nothing else."""
    if run.ending is not None:
        return False
    if run.state is RunState.MODEL_THINKING:
        if spec.model != EXTERNAL:
            return False
    elif run.state is not RunState.EXECUTE_TOOL:
        return False
    # Of a thousand open calls most are done or wait for their place: a look at each must cost next to nothing.
    elsewhere = bounded(spec)
    moving = [call for call in run.calls if call.status in _MOVING and not (elsewhere and _has_started_a_run(call))]
    return not any(_works_here(run, call) for call in moving)


def _has_started_a_run(call: Call) -> bool:
    return call.sub_agent and call.status is RUNNING


def _works_here(run: Run, call: Call) -> bool:
    if call.status in UNDECIDED:
        return not any(hold.kind in STOPPING for hold in run.holds)  # the policy is being asked
    return call.sub_agent or not awaits_answer(call)


def sub_agents_at_work(run: Run) -> tuple[Call, ...]:
    """Return the calls whose sub-agents have been started and have not ended, in call order."""
    return tuple([call for call in run.calls if call.status in IN_PROGRESS and call.sub_agent])


def rests(run: Run, spec: AgentSpec) -> bool:
    """Whether a run has ended or waits for somebody, so that nothing of it is at work in any process."""
    return run.state is RunState.SUSPENDED or run.state in ENDED or waits_outside(run, spec)


def in_inactive_wait(run: Run, spec: AgentSpec) -> bool:
    """Whether the run waits outside by the rules under which such time is not active."""
    return (spec.limits.external_seconds is not None or bounded(spec)) and waits_outside(run, spec)
