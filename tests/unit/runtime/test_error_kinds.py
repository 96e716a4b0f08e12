"""An error has one code and one kind, whoever is asked: the run, its trace, the statistics, the command line."""

from __future__ import annotations

import pytest

from geartrain.cli._outcome import reasons
from geartrain.machine import KIND_OF_CODE, AgentSpec, CancelRequested, ReasonCode, Run, RunError, RunState, spec_digest
from geartrain.persistence import StoreStatistics
from geartrain.persistence._totals import Totals
from geartrain.runtime import RunSnapshot
from geartrain.runtime._entry import head_of
from geartrain.runtime._reading._projection import project
from geartrain.runtime._reading._statistics import RunTotals

SPEC = AgentSpec(name="agent")


def ended_with(code: ReasonCode) -> Run:
    error = RunError(code=code, kind=KIND_OF_CODE[code], message="why")
    return Run(id="r-1", seq=2, state=RunState.FAILED, spec=spec_digest(SPEC), error=error)


@pytest.mark.parametrize("code", ReasonCode)
def test_a_code_has_the_same_kind_in_the_outcome_the_trace_and_the_statistics(code: ReasonCode) -> None:
    run, kind = ended_with(code), str(KIND_OF_CODE[code])

    outcome = RunSnapshot.of(run, SPEC)
    record = project(Run(id="r-1", seq=1), CancelRequested(id="e", time=0.0), run)[-1]
    totals = Totals(("turn_count",), ("error",))
    totals.add(head_of(run, SPEC).counters)

    assert outcome.error == {"code": code, "kind": kind, "message": "why"}
    assert reasons(outcome) == [f"{code} ({kind}): why"]
    assert (record.event, record.payload["code"], record.payload["kind"]) == ("run_finished", code, kind)
    assert totals.tallies["error"] == {code: 1}
    assert statistics(totals).errors_by_kind == {kind: 1}
    assert statistics(totals).errors_by_code == {code: 1}


def statistics(totals: Totals) -> RunTotals:
    used = ("turn_count", "input_tokens", "output_tokens", "tool_calls", "tool_failures", "active_seconds", "cost")
    sums = {**dict.fromkeys(used, 0), **totals.sums}
    found = {"kind": "memory", "runs": 1, "runs_by_state": {"FAILED": 1}, "bytes": 0}
    store = StoreStatistics(**found, sums=sums, tallies=totals.tallies)  # type: ignore[arg-type]
    return RunTotals.of(store)
