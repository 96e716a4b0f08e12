"""A tree of runs as lines."""

from __future__ import annotations

from typing import Any

from geartrain.cli._tree_lines import counts, fitting, lines
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
    assert first.endswith(
        "EXECUTE_TOOL, waits for 2 sub-agents, 4 more queued, 2/20 turns, 1,500/80,000 tokens, 0 calls"
    )
    assert done.startswith("  t1.c1 worker ")
    assert "FINISHED, 2 turns, 1,500 tokens" in done
    assert "SUSPENDED, waits for approval: t1.c1 write, 0 turns" in waits
    assert queued.endswith("QUEUED")
    assert last == "4 runs: 1 EXECUTE_TOOL, 1 FINISHED, 1 QUEUED, 1 SUSPENDED, 4 calls queued; 1,500 tokens"


def test_a_run_that_is_held_says_how_it_stands() -> None:
    one, _ = lines(run("r-1", depth=0, state="SUSPENDED", holds=("paused", "budget"), turn_count=1))

    assert one.endswith("SUSPENDED, paused, waits for budget, 1 turn, 0 tokens, 0 calls")


def test_of_a_tree_that_does_not_fit_those_at_work_are_shown_and_the_others_are_folded_together() -> None:
    done = [run(f"r-d{n}", state="FINISHED", ended=True) for n in range(500)]
    busy = [run(f"r-b{n}", updated_at=float(n)) for n in range(4)]

    shown = fitting(team(*done, *busy), 6)

    assert len(shown) == 6
    assert all("r-b" in line for line in shown[1:4])
    assert shown[4] == "… 500 FINISHED, 1 MODEL_THINKING more"
    assert shown[5] == counts(team(*done, *busy))


def test_whoever_waits_for_a_person_is_always_seen_below_its_parents() -> None:
    asks = run("r-asks", depth=2, state="SUSPENDED", waiting=(asked("r-asks"),))
    middle = run("r-middle", agent="middle", children=(asks,))
    busy = [run(f"r-b{n}", updated_at=9.0) for n in range(50)]

    shown = fitting(team(*busy, middle), 8)

    assert [line.split()[0] for line in shown] == ["team", "worker", "worker", "worker", "middle", "worker", "…", "53"]
    assert shown[5].startswith("    worker")


def test_what_went_wrong_is_seen_before_what_has_yet_to_begin_or_is_done() -> None:
    queued = [run(f"r-q{n}", state="QUEUED") for n in range(30)]
    done = [run(f"r-d{n}", state="FINISHED", ended=True) for n in range(30)]
    failed = run("r-f", state="FAILED", ended=True, error="timeout")

    shown = fitting(team(*done, failed, *queued), 5)

    assert "r-f" in shown[1]
    assert "timeout" in shown[1]


def test_a_run_at_work_says_for_how_long_it_has_not_moved() -> None:
    tree = team(run("r-1", updated_at=100.0), run("r-2", state="FINISHED", ended=True, updated_at=100.0))

    first, at_work, done, _ = lines(tree, now=175.0)

    assert "MODEL_THINKING for 75 s" in at_work
    assert " for " not in done
    assert "EXECUTE_TOOL, waits for 1 sub-agent" in first


def test_a_narrow_terminal_is_not_overrun_and_still_told_how_runs_stand() -> None:
    tree = team(*[run(f"r-0123456789abcde{n}", call_id=f"t1.c{n}") for n in range(3)])

    shown = fitting(tree, 20, columns=44)

    assert all(len(line) < 44 for line in shown)
    assert all("MODEL_THINKING" in line for line in shown[1:4])


def test_what_a_run_says_of_itself_cannot_steer_a_terminal() -> None:
    (line, _) = lines(run("r-1", depth=0, error="\x1b[2J"))

    assert "\x1b" not in line
