"""Every bound of the runtime in one place, each with its unit and its default.

"No limit" is the member `UNLIMITED`, never `-1`, `0` or `None`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from geartrain.errors import InvalidValue


class Unlimited(StrEnum):
    """The type of `UNLIMITED`."""

    UNLIMITED = "unlimited"


UNLIMITED: Final = Unlimited.UNLIMITED
# As many times of its restarts a run keeps.
RESTARTS_KEPT: Final = 64


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one runtime. Seconds, bytes and counts; each at least 1 unless it says otherwise.

    Raises:
        InvalidValue: A limit is not positive, or allows more restarts in a window than a run remembers.
    """

    # Effects
    model_call_seconds: float = 120.0
    model_attempts: int = 3
    write_attempts: int = 3
    model_calls_at_once: int = 1_000
    tool_call_seconds: float = 30.0
    policy_seconds: float = 5.0
    context_provider_seconds: float = 5.0
    dwell_seconds: float = 30.0
    # What a call in a worker process may use beyond what its worker had before, together with all that it starts.
    process_memory_bytes: int = 2 * 1024**3
    process_cpu_seconds: float = 60.0
    process_children: int = 256
    grace_seconds: float = 5.0
    hook_seconds: float = 30.0
    approval_expiry_seconds: float = 7 * 86_400.0
    external_seconds: float = 7 * 86_400.0

    # One reply, one run
    calls_per_reply: int = 64
    anomalies_per_run: int = 3
    argument_bytes: int = 64 * 1024
    result_context_bytes: int = 16 * 1024
    result_stored_bytes: int = 1024 * 1024
    context_messages: int = 200
    context_bytes: int = 1024 * 1024
    context_provider_bytes: int = 64 * 1024
    summarise_turns: int = 20
    event_bytes: int = 1024 * 1024
    events_per_run: int = 50_000
    events_per_run_warning: int = 10_000
    checkpoint_bytes: int = 64 * 1024
    queued_inputs: int = 100

    # Restarts of one run's actor, and deaths of the process: in a row without progress until a run goes on alone, and
    # how many it may survive alone.
    restarts_per_window: int = 3
    restart_window_seconds: float = 60.0
    restarts_per_run: int = 20
    crashes_before_alone: int = 2
    crashes_alone: int = 2

    # Actors
    mailbox_capacity: int = 1_000
    messages_per_turn: int = 64
    actors: int = 100_000
    dead_letters: int = 1_000
    messages_from_threads: int = 1_000
    sub_agent_width: int = 1_000
    # Progress of plans that is kept in memory between their turns; what is not is read from the store again.
    plan_progress_bytes: int = 64 * 1024**2
    sub_agent_depth: int = 8
    # Sub-agents of one run, of one tree and of all trees here that are at work at once; the others are queued.
    sub_agents_at_once: int = 50
    sub_agents_at_once_per_tree: int = 200
    sub_agents_at_once_per_node: int = 1_000

    # One node
    task_calls_at_once: int = 1_000
    thread_calls_at_once: int = 32
    process_calls_at_once: int = 4
    process_idle_seconds: float = 300.0
    calls_at_once_per_run: int = 8
    appends_waiting: int = 100_000
    batch_entries: int = 512
    batch_bytes: int = 4 * 1024 * 1024
    observer_records: int = 10_000
    watch_records: int = 1_000
    # How long the event loop may stand still before it is reported; checked from a thread of its own.
    loop_stall_seconds: float = 1.0
    # How often the runs in memory are compared with what is in progress for them.
    patrol_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not value > 0:  # also refuses NaN, which compares false with everything
                raise InvalidValue(name, "more than 0", value)
        restarts = self.restarts_per_window
        if not isinstance(restarts, int) or restarts > RESTARTS_KEPT:
            raise InvalidValue("restarts_per_window", f"a whole number up to {RESTARTS_KEPT}", restarts)
