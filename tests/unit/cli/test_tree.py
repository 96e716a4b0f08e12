"""A tree of runs as lines."""

from __future__ import annotations

from typing import Any

from geartrain.cli._tree import counts, fitting, lines
from geartrain.machine import Budget
from geartrain.runtime import OpenCall, RunTree


def run(run_id: str, **fields: Any) -> RunTree:
    return RunTree(**{"id": run_id, "agent": "worker", "state": "MODEL_THINKING", "depth": 1, **fields})


def team(*children: RunTree, **fields: Any) -> RunTree:
    return run("r-0", agent="team", state="EXECUTE_TOOL", depth=0, children=children, **fields)


def asked(run_id: str) -> OpenCall:
    return OpenCall(
        id=f"{run_id}/t1.c1",
        run_id=run_id,
        call_id="t1.c1",
        tool="write",
        arguments="{}",
        arguments_digest="",
        waits_for="approval",
    )


def test_each_run_has_a_line_with_its_use_and_budget_and_whom_it_waits_for() -> None:
    tree = team(
        run("r-1", call_id="t1.c1", state="FINISHED", ended=True, turn_count=2, input_tokens=1_500),
        run("r-2", call_id="t1.c2", state="SUSPENDED", holds=("approval(t1.c1)",), waiting=(asked("r-2"),)),
        run("r-3", call_id="t1.c3", state="QUEUED"),
        holds=("sub_agents",),
        queued=4,
        budget=Budget(max_turns=20, max_tokens=80_000),
    )

    first, done, waits, queued, last = lines(tree)

    assert first.startswith("team ")
    assert "0/20 turns, 0/80,000 tokens, 0 calls" in first
    assert first.endswith("waits for 2 sub-agents, 4 more queued")
    assert done.startswith("  t1.c1 worker ")
    assert "FINISHED, 2 turns, 1,500 tokens" in done
    assert waits.endswith("waits for approval: t1.c1 write")
    assert queued.endswith("QUEUED")
    assert last == "4 runs: 1 EXECUTE_TOOL, 1 FINISHED, 1 QUEUED, 1 SUSPENDED, 4 calls queued; 1,500 tokens"


def test_of_a_tree_that_does_not_fit_those_at_work_are_shown_and_all_are_counted() -> None:
    done = [run(f"r-d{n}", state="FINISHED", ended=True) for n in range(500)]
    busy = [run(f"r-b{n}", updated_at=float(n)) for n in range(4)]

    shown = fitting(team(*done, *busy), 6)

    assert len(shown) == 6
    assert all("r-b" in line for line in shown[1:4])
    assert shown[4] == "… 501 more"
    assert shown[5] == counts(team(*done, *busy))


def test_what_a_run_says_of_itself_cannot_steer_a_terminal() -> None:
    (line, _) = lines(run("r-1", depth=0, error="\x1b[2J"))

    assert "\x1b" not in line
