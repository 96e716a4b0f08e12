"""The first event of a run, from what a caller asked for: checked at this edge, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from geartrain.errors import InvalidValue
from geartrain.ids import digest
from geartrain.limits import Limits
from geartrain.machine import Budget, RunStarted
from geartrain.runtime._agent import RegisteredAgent
from geartrain.runtime._edge import checked_data, checked_input, clean_text


def started_event(
    registered: RegisteredAgent,
    *,
    run_id: str,
    text: str,
    time: float,
    limits: Limits,
    budget: Budget | None,
    deadline: float | datetime | None,
    principal: str,
    permissions: Sequence[str],
    labels: Mapping[str, str],
    context: Mapping[str, Any],
) -> RunStarted:
    """Return the event that starts a run.

    Its `request` is the digest of what was asked for, without times and ids: the same request again is known by it.

    Raises:
        InvalidValue: Something given cannot be stored.
    """
    if isinstance(deadline, datetime):
        if deadline.tzinfo is None:
            raise InvalidValue("deadline", "a datetime with a time zone", deadline)
        deadline = deadline.timestamp()
    request: dict[str, Any] = {
        "agent": registered.agent.name,
        "input": checked_input(text, limits),
        "budget": msgspec.to_builtins(budget) if budget is not None else None,
        "deadline": checked_data("deadline", deadline, limits),
        "principal": clean_text(principal),
        "permissions": checked_data("permissions", list(permissions), limits),
        "labels": checked_data("labels", dict(labels), limits),
        "context": checked_data("context", dict(context), limits),
    }
    wrong = next((key for key, value in request["labels"].items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise InvalidValue(f"label {wrong!r}", "text", request["labels"][wrong])
    return RunStarted(
        id="start",
        time=time,
        source="user",
        by=request["principal"],
        agent=registered.agent.name,
        spec=registered.digest,
        input=request["input"],
        budget=budget if budget is not None else registered.agent.budget,
        request=digest(msgspec.json.encode(request, order="sorted")),
        deadline=request["deadline"],
        principal=request["principal"],
        permissions=tuple(request["permissions"]),
        labels=request["labels"],
        context=request["context"],
        root=run_id,
    )
