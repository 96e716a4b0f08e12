"""The state machine as a page: found by walking the machine, not drawn by hand."""

from __future__ import annotations

from geartrain.machine._states import ENDED, RunState
from geartrain.machine._table import ROWS

_RESTS = {
    RunState.CREATED: "until started",
    RunState.PREPARE_CONTEXT: "only while context providers run",
    RunState.MODEL_THINKING: "yes",
    RunState.DECIDE_ACTION: "never",
    RunState.WAIT_APPROVAL: "while asynchronous policies run",
    RunState.EXECUTE_TOOL: "yes",
    RunState.OBSERVE: "never",
    RunState.COMPACT_OR_SAVE: "only while a model summarises",
    RunState.SUSPENDED: "yes, without memory",
    RunState.FINISHED: "ended",
    RunState.FAILED: "ended",
    RunState.CANCELLED: "ended",
}

# What may directly follow what. The full product of states and events is walked in a test, which fails if a step
# takes an edge that is not here, or if one of these is never taken.
EDGES: dict[RunState, tuple[RunState, ...]] = {
    RunState.CREATED: (RunState.PREPARE_CONTEXT,),
    RunState.PREPARE_CONTEXT: (
        RunState.MODEL_THINKING,
        RunState.WAIT_APPROVAL,
        RunState.SUSPENDED,
        RunState.FAILED,
        RunState.CANCELLED,
    ),
    RunState.MODEL_THINKING: (
        RunState.DECIDE_ACTION,
        RunState.EXECUTE_TOOL,
        RunState.OBSERVE,
        RunState.COMPACT_OR_SAVE,
        RunState.SUSPENDED,
        RunState.FAILED,
        RunState.CANCELLED,
    ),
    RunState.DECIDE_ACTION: (
        RunState.FINISHED,
        RunState.WAIT_APPROVAL,
        RunState.EXECUTE_TOOL,
        RunState.OBSERVE,
        RunState.COMPACT_OR_SAVE,
        RunState.MODEL_THINKING,
        RunState.SUSPENDED,
        RunState.FAILED,
    ),
    RunState.WAIT_APPROVAL: (
        RunState.EXECUTE_TOOL,
        RunState.OBSERVE,
        RunState.COMPACT_OR_SAVE,
        RunState.MODEL_THINKING,
        RunState.SUSPENDED,
        RunState.FINISHED,
        RunState.FAILED,
        RunState.CANCELLED,
    ),
    RunState.EXECUTE_TOOL: (
        RunState.OBSERVE,
        RunState.WAIT_APPROVAL,
        RunState.MODEL_THINKING,
        RunState.SUSPENDED,
        RunState.FINISHED,
        RunState.FAILED,
        RunState.CANCELLED,
    ),
    RunState.OBSERVE: (RunState.COMPACT_OR_SAVE,),
    RunState.COMPACT_OR_SAVE: (
        RunState.MODEL_THINKING,
        RunState.PREPARE_CONTEXT,
        RunState.WAIT_APPROVAL,
        RunState.SUSPENDED,
        RunState.FAILED,
        RunState.CANCELLED,
    ),
    RunState.SUSPENDED: (
        RunState.WAIT_APPROVAL,
        RunState.EXECUTE_TOOL,
        RunState.OBSERVE,
        RunState.COMPACT_OR_SAVE,
        RunState.MODEL_THINKING,
        RunState.PREPARE_CONTEXT,
        RunState.DECIDE_ACTION,
        RunState.FAILED,
        RunState.CANCELLED,
    ),
    RunState.FINISHED: (),
    RunState.FAILED: (),
    RunState.CANCELLED: (),
}


def diagram() -> str:
    """Return the edges as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> CREATED"]
    lines += [f"    {state} --> {after}" for state, afters in EDGES.items() for after in afters]
    lines += [f"    {state} --> [*]" for state in RunState if state in ENDED]
    return "\n".join(lines)


def page() -> str:
    """Return `docs/state-machine.md`."""
    rows = [
        f"| {state} | {_RESTS[state]} | {', '.join(sorted(event.__name__ for event in ROWS[state])) or 'nothing'} |"
        for state in RunState
    ]
    return "\n".join(
        [
            "# The state machine",
            "",
            "Generated from the table in `geartrain.machine` by `make docs`; do not edit.",
            "",
            "```mermaid",
            diagram(),
            "```",
            "",
            "| state | rests? | events that are possible |",
            "|---|---|---|",
            *rows,
            "",
            "An event that is not in its state's row is refused: nothing changes and nothing is stored.",
            "",
        ]
    )
