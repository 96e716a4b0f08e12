"""Golden journals: recorded once for each released format, replayed for ever, never edited.

A file holds JSON lines: the specs, then each event with its version and the path that it led along, then what the
run had become. `python tests/replay/goldens.py NAME` records a new set beside the old ones and refuses to touch one
that is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec

from geartrain.ids import digest
from geartrain.machine import EVENT_VERSIONS, Event, Run, encode_event, encode_spec, join_path

HERE = Path(__file__).parent
# What a later version of the machine must still make of a journal. Fields that a later version adds are not in it, but
# of the sets that were recorded since.
COMPARED = (
    "state", "seq", "agent", "messages", "messages_dropped", "turn_count", "token_count", "active_seconds",
    "tool_failures", "tool_calls", "anomalies", "permission_decisions", "final_answer", "error", "updated_at",
)  # fmt: skip


ADDED = {"v1-3": ("below", "published", "awaited", "heard", "depth")}
# Fields whose values are told apart: each of them is to be in some journal.
_TOLD_APART = ("state", "code", "status", "kind", "not_done", "verdict", "refused", "source")


def compared(run: Run, name: str) -> str:
    """Return the digest of what is compared of a run in the set of that name."""
    fields = (*COMPARED, *ADDED.get(name, ()))
    return digest(msgspec.json.encode([getattr(run, field) for field in fields]))


def _record(name: str) -> None:
    sys.path.insert(0, str(HERE.parent / "unit" / "machine"))
    from machine_world import walk  # noqa: PLC0415 - only who records needs the world

    folder = HERE / name
    folder.mkdir()
    worlds = [[world for world, _ in walk(seed)][-1] for seed in range(1_500)]
    missing = set().union(*map(_kinds, worlds))
    assert missing >= {kind.__name__ for kind in get_args(Event)}
    while missing:
        # The one with most that is still missing; of those the shortest.
        best = max(worlds, key=lambda world: (len(missing & _kinds(world)), -world.run.seq))
        missing -= _kinds(best)
        _write(folder, best)


def _kinds(world: Any) -> set[str]:
    """Return what a journal has in it: kinds of events, and of each kind the fields that say something.

    Also how it ends, and whether a plan leads there; and of sub-agents' ends, how each did.
    """
    found = {f"ends: {world.run.error.code if world.run.error else world.run.state}"}
    plan = any(spec.plan for spec in world.specs.values())
    for event, _ in world.journal:
        name, fields = type(event).__name__, msgspec.to_builtins(event)
        found |= {name, *(f"{name}.{field}" for field in fields)}
        found |= {f"{name}.{field}={fields[field]}" for field in _TOLD_APART if field in fields}
        found |= {f"a plan: {name}"} if plan else set()
    return found


def _write(folder: Path, world: Any) -> None:
    specs = {key: json.loads(encode_spec(spec)) for key, spec in world.specs.items()}
    lines: list[dict[str, Any]] = [{"run": world.run.id, "specs": specs}]
    for event, states in world.journal:
        kind = type(event).__name__
        body = encode_event(event).decode()
        lines.append({"type": kind, "version": EVENT_VERSIONS[kind], "body": body, "path": join_path(states)})
    lines.append({"state": world.run.state, "digest": compared(world.run, folder.name)})
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (folder / f"{world.run.id}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _record(sys.argv[1])
