"""Runs that travel, as their users meet it: exported in one folder, looked at in another that has nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from test_cli import Terminal, World, server, world  # noqa: F401 - fixtures

pytestmark = pytest.mark.real_time


def export(world: World, run: str, *words: str) -> Path:  # noqa: F811
    """Export a run of the store, and return the file: alone in a folder far from the store and the agents."""
    done = world.run("export", run, *words)
    assert done.returncode == 0, done.stderr
    file = world.elsewhere / "run.jsonl"
    file.write_text(done.stdout)
    return file


def without_store(world: World) -> None:  # noqa: F811
    """Take the store, the agents' code, and every memory of them away."""
    for path in (world.folder / ".geartrain", world.folder / "app.py", world.base / "state"):
        assert path.exists()
        path.rename(path.with_name(f"{path.name}.gone"))


def test_a_run_is_exported_in_one_folder_and_stepped_and_replayed_in_another(world: World) -> None:  # noqa: F811
    run = world.app("writer")["id"]
    assert world.run("approve", run, "--app", "app:app", "--by", "alice").returncode == 0
    shown = world.run("show", run, "--full").stdout
    file = export(world, run)
    without_store(world)

    replayed = world.run("replay", "run.jsonl", cwd=world.elsewhere)
    stepped = world.run("step", "run.jsonl", cwd=world.elsewhere)
    first = world.run("step", str(file), "--at", "1", "--full", cwd=world.elsewhere)
    there = world.run("show", "run.jsonl", "--full", cwd=world.elsewhere)

    assert (replayed.returncode, replayed.stdout.startswith(f"{run}: no difference in ")) == (0, True)
    assert replayed.stdout.endswith(", FINISHED\n")
    events = stepped.stdout.splitlines()
    assert (stepped.returncode, events[0].split()[:2]) == (0, ["1", "RunStarted"])
    assert events[-1].endswith("DECIDE_ACTION > FINISHED")
    assert any("ApprovalDecided" in line for line in events)
    for label in (
        "before    not started",
        "path      CREATED > PREPARE_CONTEXT > MODEL_THINKING",
        "saw       [system]",
    ):
        assert label in first.stdout
    assert "+ CallModel t1.model.a1" in first.stdout
    timeline = shown.index("run_started") if "run_started" in shown else shown.index("started by tester")
    assert shown[timeline:] in there.stdout
    assert f"exported   {file}" in there.stdout
    assert not (world.elsewhere / ".geartrain").exists()


def test_a_run_that_waits_shows_no_command_that_nothing_here_could_answer(world: World) -> None:  # noqa: F811
    run = world.app("writer")["id"]
    export(world, run)

    shown = world.run("show", "run.jsonl", cwd=world.elsewhere)

    assert "waits for approval(t1.c1)" in shown.stdout
    assert "geartrain approve" not in shown.stdout


def test_a_step_has_the_whole_state_as_json(world: World) -> None:  # noqa: F811
    run = world.app("writer")["id"]

    one = json.loads(world.run("step", run, "--at", "2", "--json").stdout)
    lines = [json.loads(line) for line in world.run("step", run, "--json").stdout.splitlines()]

    assert one == lines[1]
    assert (one["seq"], one["event"]["type"], one["after"]["state"]) == (2, "ModelReplied", "WAIT_APPROVAL")
    assert one["before"] == lines[0]["after"]
    assert {"path", "recorded", "commands", "commands_before", "saw", "refusal"} <= set(one)


def test_a_pushed_event_moves_a_copy_and_an_impossible_one_prints_why(world: World) -> None:  # noqa: F811
    run = world.app("writer")["id"]
    before = world.run("show", run).stdout

    possible = world.run("step", run, "--push", "ApprovalDecided", '{"call_id": "t1.c1", "approved": true, "by": "me"}')
    impossible = world.run(
        "step", run, "--push", "ToolFinished", '{"call_id": "t9.c1", "attempt": 1, "status": "ok", "text": ""}'
    )
    early = world.run("step", run, "--at", "0", "--push", "InputReceived", '{"text": "hello"}')

    assert possible.returncode == 0, possible.stderr
    assert "path      WAIT_APPROVAL" in possible.stdout
    assert "+ EvaluatePermissions" in possible.stdout
    assert (impossible.returncode, early.returncode) == (1, 1)
    assert "ToolFinished is not possible in SUSPENDED" in impossible.stderr
    assert "refused" in impossible.stdout
    assert "the run has not started" in early.stderr
    assert world.run("show", run).stdout == before
    assert world.noted == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--push", "PauseRequested", "{"), "is no JSON"),
        (("--push", "PauseRequested", "[]"), "must be a JSON object"),
        (("--push", "Daydreamed", "{}"), "'Daydreamed' is no type of event; there are: RunStarted, "),
        (("--push", "ApprovalDecided", '{"call_id": "t1.c1"}'), "ApprovalDecided: Object missing required field"),
        (("--at", "99"), "--at: must be 1 to "),
        (("--at", "0"), "--at: must be 1 to "),
        (("--at", "99", "--push", "PauseRequested", "{}"), "--at: must be 0 to "),
        (("--push", "PauseRequested", '{"reason": ' + "[" * 20_000), "is no JSON"),
        (("--push", "PauseRequested", '{"reason": "\\ud800"}'), "must be JSON data"),
    ],
)
def test_what_cannot_be_stepped_is_wrong_usage(words: tuple[str, ...], said: str, world: World) -> None:  # noqa: F811
    done = world.run("step", world.app("writer")["id"], *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("text", ["", "hello\n", "{}\n"])
def test_a_file_that_is_no_exported_run_is_called_so(text: str, world: World) -> None:  # noqa: F811
    (world.base / "notes.jsonl").write_text(text)

    done = world.run("step", str(world.base / "notes.jsonl"))

    assert (done.returncode, done.stdout) == (2, "")
    assert "is no exported run" in done.stderr or "does not begin an exported run" in done.stderr


def test_what_is_left_out_of_an_export_is_nowhere_in_it(world: World) -> None:  # noqa: F811
    run = world.app("writer")["id"]

    file = export(world, run, "--redact", "text:hello", "--redact", "principal", "--redact", "by")

    text = file.read_text()
    assert "hello" not in text
    assert "tester" not in text
    assert world.run("replay", str(file), cwd=world.elsewhere).returncode == 0


def test_a_redaction_that_would_change_the_run_exports_nothing(world: World) -> None:  # noqa: F811
    done = world.run("export", world.app("writer")["id"], "--redact", "tool")

    assert (done.returncode, done.stdout) == (2, "")
    assert "leave out less of it" in done.stderr


@pytest.mark.parametrize("command", ["show", "replay", "step"])
def test_an_export_that_is_cut_or_edited_is_refused_with_the_line(command: str, world: World) -> None:  # noqa: F811
    file = export(world, world.app("writer")["id"])
    lines = file.read_text().splitlines(keepends=True)

    for damaged, line in (
        ("".join(lines[:-1]), len(lines)),
        ("".join(lines).replace("hello", "jello"), 4),
        ("".join(lines).replace('"version":1,', '"version":9,', 1), None),
    ):
        file.write_text(damaged)
        done = world.run(command, str(file), cwd=world.elsewhere)
        assert (done.returncode, done.stdout) == (2, "")
        assert (f"line {line}: " if line else "found version 9") in done.stderr


def test_an_export_is_read_from_a_pipe(world: World) -> None:  # noqa: F811
    run = world.app("writer")["id"]
    file = export(world, run)
    pipe = world.elsewhere / "pipe"
    os.mkfifo(pipe)

    replaying = world.start("replay", str(pipe), cwd=world.elsewhere)
    pipe.write_bytes(file.read_bytes())

    assert replaying.wait() == 0
    assert replaying.output[0].startswith(f"{run}: no difference")
    replaying.close()


@pytest.mark.parametrize("given", ["none.jsonl", "./none", "app.py", ".geartrain/runs.db", "x" * 5_000])
def test_a_file_that_is_no_export_is_wrong_usage(given: str, world: World) -> None:  # noqa: F811
    world.app("writer")

    done = world.run("step", given)

    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_somebody_at_a_terminal_goes_forth_and_back(world: World) -> None:  # noqa: F811
    run = world.app("writer")["id"]

    terminal = Terminal(world, "step", run)
    terminal.wait_for("event 1 of ")

    for typed, shown in (
        ("n", "event 2 of "),
        ("", "event 3 of "),
        ("p", "event 2 of "),
        ("99", "there are events 1 to "),
        ("?", "what a hand-made event would do"),
        ("push CancelRequested", "pushed as event 3"),
        ("push ModelReplied", "geartrain: "),
        ("f", "event 2 of "),
        ("l", "RunStarted"),
        ("a", "event 1 of "),
        ("z", "event 3 of 3"),
    ):
        terminal.text = ""
        terminal.type(f"{typed}\n")
        terminal.wait_for(shown)
        terminal.wait_for("? for more: ")
    terminal.type("q\n")

    assert terminal.wait_ended() == 0


def test_an_export_is_not_poured_over_a_terminal(world: World) -> None:  # noqa: F811
    run = world.app("writer")["id"]

    terminal = Terminal(world, "export", run)

    assert terminal.wait_ended() == 2
    assert "is a terminal" in terminal.text


# What a store holds


def test_statistics_and_the_foot_of_a_list_say_what_all_runs_come_to(world: World) -> None:  # noqa: F811
    world.app("writer")
    world.app("sure")
    world.app("poor")

    shown = world.run("statistics")
    counted = json.loads(world.run("statistics", "--json").stdout)
    listed = world.run("list", "--limit", "1")

    assert counted["by_state"] == {"SUSPENDED": 2, "FINISHED": 1}
    assert counted["turn_count"] == sum(run["turn_count"] for run in world.runs())
    assert "runs       3\n           2 SUSPENDED\n           1 FINISHED\n" in shown.stdout
    assert "3 runs in all: 2 SUSPENDED, 1 FINISHED; " in listed.stderr
    assert "in all" not in listed.stdout


def test_a_run_of_a_store_elsewhere_is_deleted_by_its_whole_id_only(world: World) -> None:  # noqa: F811
    run = world.app("sure")["id"]

    begun = world.run("delete", run[:-1], "--yes", cwd=world.elsewhere)
    kept = [each["id"] for each in world.runs()]
    whole = world.run("delete", run, "--yes", cwd=world.elsewhere)

    assert (begun.returncode, "give its whole id, or --store" in begun.stderr) == (2, True), begun.stderr
    assert kept == [run]
    assert (whole.returncode, world.runs()) == (0, [])


def test_runs_are_deleted_all_that_are_named_or_none(world: World) -> None:  # noqa: F811
    one, two, waits = (world.app(agent)["id"] for agent in ("sure", "sure", "writer"))

    unasked = world.run("delete", one)
    refused = world.run("delete", one, waits, "--yes")
    unknown = world.run("delete", one, "r-none", "--yes")
    before = {run["id"] for run in world.runs()}
    deleted = world.run("delete", one, two[:-1], "--yes")

    assert (unasked.returncode, refused.returncode, unknown.returncode) == (2, 2, 2)
    assert "--yes" in unasked.stderr
    assert f"{waits!r}: it is in SUSPENDED" in refused.stderr
    assert before == {one, two, waits}
    assert (deleted.returncode, {run["id"] for run in world.runs()}) == (0, {waits})


def test_pruning_says_how_many_and_deletes_when_told_so(world: World) -> None:  # noqa: F811
    world.app("sure")
    waits = world.app("writer")["id"]

    fresh = world.run("prune", "--older-than", "1h", "--yes")
    dry = json.loads(world.run("prune", "--older-than", "0s", "--dry-run", "--json").stdout)
    unasked = world.run("prune", "--older-than", "0s")
    pruned = world.run("prune", "--older-than", "0s", "--yes")

    assert fresh.stdout.startswith("0 runs that ended before ")
    assert dry["runs"] == 1
    assert (unasked.returncode, pruned.returncode) == (2, 0)
    assert pruned.stdout.startswith("deleted 1 run that ended before ")
    assert [run["id"] for run in world.runs()] == [waits]


@pytest.mark.parametrize("age", ["", "30", "d", "-1d", "1 year", "1e9d", "nan", "٣d"])
def test_an_age_that_is_none_is_wrong_usage(age: str, world: World) -> None:  # noqa: F811
    world.app("sure")

    done = world.run("prune", "--older-than", age, "--yes")

    assert (done.returncode, done.stdout) == (2, "")
    assert len(world.runs()) == 1


@pytest.mark.parametrize(("typed", "left"), [("\n", 1), ("n\n", 1), ("\x04", 1), ("y\n", 0)])
def test_somebody_at_a_terminal_is_asked_before_runs_are_deleted(typed: str, left: int, world: World) -> None:  # noqa: F811
    run = world.app("sure")["id"]
    terminal = Terminal(world, "delete", run)
    terminal.wait_for("Delete 1 run for good? ")

    terminal.type(typed)

    assert terminal.wait_ended() == 0
    assert len(world.runs()) == left


def test_runs_of_a_store_that_a_process_owns_are_not_deleted(world: World) -> None:  # noqa: F811
    run = world.app("sure")["id"]

    with world.in_the_middle():
        done = world.run("delete", run, "--yes")

    assert (done.returncode, "owned by process" in done.stderr) == (1, True)
    assert run in {each["id"] for each in world.runs()}
