"""Commands: what must be in progress for a run to move. They are data; the runtime carries them out.

`key` names the effect. The runtime compares the keys of `outstanding(run)` with what is in progress, starts what is
missing and cancels what is no longer wanted.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from geartrain.machine._states import RunState


class CommandBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    """What every command has: the key of its effect, unique within the run."""

    key: str


class PrepareContext(CommandBase, frozen=True, kw_only=True):
    """Ask the context providers; with `handoff_to`, find that agent's spec first."""

    handoff_to: str = ""


class CallModel(CommandBase, frozen=True, kw_only=True):
    """Ask the model for the reply of `turn`. Without `tools` it may only answer."""

    turn: int
    attempt: int
    tools: bool = True
    max_output_tokens: int | None = None


class EvaluatePermissions(CommandBase, frozen=True, kw_only=True):
    """Ask the policy about these calls. `evaluation` (from 1) goes into the event that answers."""

    call_ids: tuple[str, ...]
    evaluation: int = 0


class RunCall(CommandBase, frozen=True, kw_only=True):
    """Run a tool, or (`mode` verify) ask it whether its write was done.

    A write (not `read_only`) must be journalled as started before it starts.
    """

    call_id: str
    tool: str
    arguments: str
    attempt: int
    read_only: bool
    mode: Literal["run", "verify"] = "run"
    external: bool = False
    timeout_seconds: float = 30.0


class StartSubAgent(CommandBase, frozen=True, kw_only=True):
    """Start a run of `agent` for this call."""

    call_id: str
    agent: str
    arguments: str


class CompactContext(CommandBase, frozen=True, kw_only=True):
    """Have the oldest `messages` messages after the system prompt summarised."""

    messages: int


class AnnounceApproval(CommandBase, frozen=True, kw_only=True):
    """Tell whoever decides that this call waits for a decision."""

    call_id: str


class AnnounceEnd(CommandBase, frozen=True, kw_only=True):
    """Tell whoever waits that the run has ended."""

    state: RunState


Command = (
    PrepareContext
    | CallModel
    | EvaluatePermissions
    | RunCall
    | StartSubAgent
    | CompactContext
    | AnnounceApproval
    | AnnounceEnd
)
