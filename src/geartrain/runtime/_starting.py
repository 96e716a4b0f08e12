"""The first event of a run, from what a caller asked for: checked at this edge, once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from geartrain.errors import InvalidValue
from geartrain.ids import derived_run_id, digest
from geartrain.limits import Limits
from geartrain.machine import Budget, RunStarted
from geartrain.runtime._agent import RegisteredAgent
from geartrain.runtime._edge import checked_as, checked_data, checked_id, checked_input, clean_text


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
    continues: str | None = None,
) -> RunStarted:
    """Return the event that starts a run.

    Its `request` is the digest of what was asked for, without times and ids: the same request again is known by it.

    Raises:
        InvalidValue: Something given cannot be stored.
    """
    if budget is not None:
        budget = registered.agent.checked_budget(checked_budget(budget))
    request: dict[str, Any] = {
        "agent": registered.agent.name,
        "input": checked_input(text, limits),
        "budget": msgspec.to_builtins(budget) if budget is not None else None,
        "deadline": _checked_deadline(deadline),
        "principal": clean_text(principal),
        "permissions": _checked_permissions(permissions, limits),
        "labels": _checked_mapping("labels", labels, limits),
        "context": _checked_mapping("context", context, limits),
    }
    if continues is not None:
        request["continues"] = checked_id("continues", continues)
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
        continues=request.get("continues", ""),
    )


def own_run_id(run_id: str | None, idempotency_key: str | None) -> str | None:
    """Return the run id that a caller chose, by itself or by a key; None if it chose none.

    Raises:
        InvalidValue: It is no id, or both are given.
    """
    if idempotency_key is None:
        return None if run_id is None else checked_id("run_id", run_id)
    if run_id is not None:
        raise InvalidValue("run_id and idempotency_key", "given one at a time", (run_id, idempotency_key))
    if not isinstance(idempotency_key, str) or not idempotency_key:
        raise InvalidValue("idempotency_key", "text, not empty", idempotency_key)
    return derived_run_id("start", idempotency_key)


def checked_budget(budget: Any) -> Budget:
    """Return *budget*, if it is one that can be stored; raises `InvalidValue`."""
    if not isinstance(budget, Budget):
        raise InvalidValue("budget", "a Budget", budget)
    return checked_as("budget", budget, Budget)


def _checked_deadline(deadline: Any) -> float | None:
    if isinstance(deadline, datetime):
        if deadline.tzinfo is None:
            raise InvalidValue("deadline", "a datetime with a time zone", deadline)
        return deadline.timestamp()
    if deadline is None:
        return None
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not math.isfinite(deadline):
        raise InvalidValue("deadline", "seconds since 1970, or a datetime with a time zone", deadline)
    return float(deadline)


def _checked_permissions(permissions: Any, limits: Limits) -> list[str]:
    if isinstance(permissions, str) or not all(isinstance(each, str) for each in permissions):
        raise InvalidValue("permissions", "a sequence of texts", permissions)
    return checked_data("permissions", list(permissions), limits)  # type: ignore[no-any-return]


def _checked_mapping(name: str, value: Any, limits: Limits) -> Any:
    if not isinstance(value, Mapping):
        raise InvalidValue(name, "a mapping", value)
    return checked_data(name, dict(value), limits)
