from __future__ import annotations

from typing import Any

from geartrain.cli._timeline import shown_time
from geartrain.cli._why import why_rows
from geartrain.persistence import RefusedEvent
from geartrain.runtime import Awaited, Standing, StuckRun

AT = shown_time(100.0)
CALL = Awaited(key="t1.c1.a1", command="RunCall", about="look", seq=4, since=100.0)


def standing(**fields: Any) -> Standing:
    plain: dict[str, Any] = {
        "run_id": "r-1",
        "awaited": (),
        "newest_seq": 4,
        "newest_type": "PermissionsEvaluated",
        "newest_id": "t1.policy.a1",
        "newest_time": 100.0,
        "refused": (),
        "stuck": None,
    }
    return Standing(**{**plain, **fields})


def test_the_questions_are_answered_in_the_order_in_which_a_person_asks_them() -> None:
    refused = RefusedEvent(id="e1", type="RunResumed", state="EXECUTE_TOOL", reason="it is not paused", time=100.0)
    stuck = StuckRun(
        run_id="r-1", agent="a", state="EXECUTE_TOOL", cause="dwell", since=100.0, about="call t1.c1 of look",
        done="resend",
    )  # fmt: skip

    assert list(why_rows(standing(awaited=(CALL,), refused=(refused,), stuck=stuck))) == [
        ("sent", f"RunCall t1.c1.a1 (look), asked for by event 4 at {AT}"),
        ("processed", f"no answer yet; the newest event is 4, PermissionsEvaluated t1.policy.a1 at {AT}"),
        ("refused", f"RunResumed e1 at {AT} in EXECUTE_TOOL: it is not paused"),
        ("stuck", f"dwell since {AT}: call t1.c1 of look (done: resend)"),
    ]


def test_a_run_that_waits_for_nothing_says_so_and_many_answers_are_counted() -> None:
    (row,) = why_rows(standing())
    many = [text for name, text in why_rows(standing(awaited=(CALL,) * 7)) if name == "sent"]

    assert row[1].startswith("nothing is awaited; ")
    assert many[5:] == ["and 2 more"]
