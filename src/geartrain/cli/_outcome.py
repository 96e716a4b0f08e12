"""How a command ends: exit codes, and the lines that say what became of a run and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from geartrain.cli._text import counted, one_line, safe
from geartrain.machine import HoldKind, ReasonCode, RunState, what_to_do
from geartrain.runtime import OpenCall, RunSnapshot, RunTree

FAILED: Final = 1
USAGE: Final = 2
SUSPENDED: Final = 3
_RUNS_TOLD: Final = 10
EXIT_CODES: Final = {
    RunState.FINISHED: 0,
    RunState.FAILED: FAILED,
    RunState.SUSPENDED: SUSPENDED,
    RunState.CANCELLED: 4,
}
# The option of `resume` that raises the limit that was reached.
_RAISED_BY: Final[dict[str, str]] = {
    ReasonCode.MAX_TURNS_EXCEEDED: "--max-turns N",
    ReasonCode.TIMEOUT: "--max-seconds S",
    ReasonCode.TOO_MANY_TOOL_FAILURES: "--max-tool-failures N",
    ReasonCode.TOKEN_BUDGET_EXCEEDED: "--max-tokens N",
    ReasonCode.COST_BUDGET_EXCEEDED: "--max-cost C",
    ReasonCode.TOOL_CALL_BUDGET_EXCEEDED: "--max-tool-calls N",
}


def exit_code(snapshot: RunSnapshot) -> int:
    """Return the exit code that tells in which state a run is; one still on its way has failed to come to rest."""
    if snapshot.at_rest and not snapshot.ended:  # also one that waits for somebody outside, in whatever state
        return SUSPENDED
    return EXIT_CODES.get(RunState(snapshot.state), FAILED)


@dataclass(frozen=True, slots=True)
class Way:
    """What a command needs to find a run and its agents again: options, and what goes before it (`cd DIR && `)."""

    options: tuple[str, ...] = ()
    before: str = ""

    @property
    def to_look(self) -> Way:
        """The same for a command that only looks, and needs no agents."""
        return replace(self, options=self.options[:2] if "--store" in self.options[:1] else ())


def command_line(command: str, run_id: str, way: Way, *more: str) -> str:
    """Return the command that goes on with a run, for somebody to copy into a shell in any folder."""
    return way.before + shlex.join(["geartrain", command, run_id, *more, *way.options])


def summary(snapshot: RunSnapshot) -> str:
    """Return one line about a run: its id, state, turns, calls, tokens and active time."""
    usage = snapshot.usage
    parts = [
        counted(snapshot.turn_count, "turn"),
        counted(snapshot.tool_calls, "call"),
        f"{counted(usage.total_tokens, 'token')} ({usage.input_tokens:,} in, {usage.output_tokens:,} out)",
        f"{snapshot.active_seconds:.2f} s",
        *([f"cost {usage.cost:.4f}"] if usage.cost else []),
    ]
    if snapshot.tool_failures:
        parts.insert(2, counted(snapshot.tool_failures, "failed call"))
    below = snapshot.tree_usage.total_tokens - usage.total_tokens
    if below > 0:
        parts.append(f"sub-agents {counted(below, 'token')}")
    return f"{snapshot.id}  {snapshot.state}  {', '.join(parts)}"


def reasons(snapshot: RunSnapshot) -> list[str]:
    """Return what keeps a run from having finished, a line each."""
    lines = []
    if snapshot.error is not None:
        error = snapshot.error
        lines.append(f"{error['code']} ({error['kind']}): {one_line(error['message'], 300)}")
    if snapshot.out_of_budget is not None and snapshot.out_of_budget["code"]:
        over = snapshot.out_of_budget
        lines.append(f"out of budget: {over['code']}: {one_line(over['message'], 300)}")
    if snapshot.quarantine:
        lines.append(f"quarantined: {one_line(snapshot.quarantine, 500)}")
    if snapshot.set_apart:
        lines.append(f"set apart: {one_line(snapshot.set_apart, 300)}")
    return lines


def advice(snapshot: RunSnapshot) -> list[str]:
    """Return what to do about a run that did not finish; of a code that is not known here, nothing."""
    todo = what_to_do(snapshot.error["code"]) if snapshot.error is not None else ""
    return [f"what to do: {todo}"] if todo else []


def next_steps(snapshot: RunSnapshot, way: Way) -> list[str]:
    """Return what a run that rests waits for, and the commands that answer it."""
    return _own_steps(snapshot, way) if snapshot.at_rest or snapshot.state == RunState.SUSPENDED else []


def tree_steps(tree: RunTree, way: Way) -> list[str]:
    """Return what the runs of a tree wait for, those of the first ones, and the commands that answer it."""
    waiting = [steps for run, above in _with_parents(tree) if (steps := _own_steps(run, way, above))]
    lines = [line for steps in waiting[:_RUNS_TOLD] for line in steps]
    if len(waiting) > _RUNS_TOLD:
        more = command_line("list", "--waiting", way.to_look, "--root", tree.id)
        lines.append(f"… {len(waiting) - _RUNS_TOLD:,} more wait for somebody: {more}")
    return lines


def _with_parents(tree: RunTree, above: RunTree | None = None) -> Iterator[tuple[RunTree, RunTree | None]]:
    yield tree, above
    for child in tree.children:
        yield from _with_parents(child, tree)


def _own_steps(snapshot: RunSnapshot | RunTree, way: Way, above: RunTree | None = None) -> list[str]:
    if snapshot.ended:
        return []
    lines = [line for call in snapshot.waiting for line in call_steps(call, way, len(snapshot.waiting) > 1)]
    if snapshot.awaits_reply:
        line = command_line("reply", snapshot.id, way)
        lines += [
            f"waits for turn {snapshot.turn_count + 1}: {line} TEXT",
            f"  or with calls: {line} --call 'TOOL JSON'",
        ]
    kinds = {hold.partition("(")[0] for hold in snapshot.holds}
    if HoldKind.PAUSED in kinds and (above is None or HoldKind.PAUSED not in above.holds):  # or it goes on with that
        lines.append(f"paused: {command_line('resume', snapshot.id, way)}")
    if HoldKind.STUCK in kinds:
        lines.append(f"stuck: {command_line('resume', snapshot.id, way)}")
    if HoldKind.QUARANTINED in kinds:
        lines.append(f"quarantined: {command_line('resume', snapshot.id, way)}")
        lines.append(f"  or end it: {command_line('cancel', snapshot.id, way)}")
    if HoldKind.BUDGET in kinds:
        code = (snapshot.out_of_budget or {}).get("code", "")
        lines.append(
            f"out of budget: {command_line('resume', snapshot.id, way)} {_RAISED_BY.get(code, '--max-turns N')}"
        )
    if HoldKind.INPUT in kinds and not snapshot.waiting:
        lines.append(f"waits for input: {command_line('send', snapshot.id, way)} TEXT")
    if not lines and _waits_for_an_event(snapshot):
        stay = command_line("work", "--stay", way)
        lines.append(f"waits for an event of its tree, or for its time to be over: {stay}")
    return lines


def _waits_for_an_event(run: RunSnapshot | RunTree) -> bool:
    below = run.sub_agents if isinstance(run, RunSnapshot) else [child for child in run.children if not child.ended]
    return run.at_rest and run.state == RunState.EXECUTE_TOOL and not below


def waits_of(snapshot: RunSnapshot) -> list[str]:
    """Return what a run waits for: its holds, and what somebody outside is to bring."""
    answers = [f"answer({call.call_id})" for call in snapshot.waiting if call.waits_for == "answer"]
    below = [counted(len(snapshot.sub_agents), "sub-agent")] if snapshot.sub_agents else []
    return [*snapshot.holds, *(["reply"] if snapshot.awaits_reply else []), *answers, *below]


def call_steps(call: OpenCall, way: Way, several: bool) -> list[str]:
    """Return what *call* waits for, and the commands that answer it."""
    which = [call.call_id] if several else []
    what = f"{call.call_id} {safe(call.tool)}"
    match call.waits_for:
        case HoldKind.APPROVAL:
            approve = command_line("approve", call.run_id, way, *which)
            return [
                f"{what} waits for approval: {approve}",
                f"  or: {command_line('deny', call.run_id, way, *which)}",
                *([f"  asked: {one_line(call.reason, 200)}"] if call.reason else []),
            ]
        case HoldKind.IN_DOUBT:
            settle = command_line("settle", call.run_id, way, *which)
            return [
                f"{what} may have been done ({one_line(call.reason)}); settle it with one of these:",
                f"  it was done: {settle} --done",
                f"  it was not, run it: {settle} --run",
                f"  it was not, go on without it: {settle} --skip",
            ]
        case "answer":
            return [f"{what} waits for an answer: {command_line('answer', call.run_id, way, *which)} TEXT"]
        case _:
            return [f"{what} waits for input: {command_line('send', call.run_id, way)} TEXT"]
