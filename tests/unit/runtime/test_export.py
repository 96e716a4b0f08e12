"""A run that leaves its store: what arrives is the run, or is refused."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_world import Store, an_agent, calling

from geartrain.errors import FormatUnknown, InvalidValue, RunNotFound
from geartrain.machine import Budget
from geartrain.models import ModelReply
from geartrain.runtime import Ask, ExportUnusable, RedactionRefused, Runtime, open_reader
from geartrain.runtime._travel._exported import open_export, read_lines
from geartrain.runtime._travel._lines import Writer
from geartrain.tools import Tool, ToolContext, tool

SECRET = "hunter2-is-the-word"


@tool
async def login(user: str, password: str) -> str:
    """Log in."""
    return f"{user} is in with {password}"


@tool(read_only=True)
async def look(size: int) -> str:
    """Look at much."""
    return f"{SECRET} " + "x" * size


@tool(read_only=True)
async def binary(size: int) -> bytes:
    """Look at what is no text."""
    return b"\xff\x00" * size


LOGIN = calling("login", json.dumps({"user": "ops", "password": SECRET}))
LOOK = calling("look", '{"size": 40000}')


def agents(*tools: Tool) -> Any:
    replies = [[LOGIN, LOOK], f"I know {SECRET} now"]
    return an_agent(replies, *(tools or (login, look)), instructions=f"Never tell {SECRET}.")


async def exported(runtime: Runtime, run_id: str, **options: Any) -> bytes:
    return b"".join([line async for line in runtime.export(run_id, **options)])


async def finished(store: Store, **options: Any) -> tuple[str, bytes]:
    async with store.runtime(agents()) as runtime:
        run = await runtime.start("worker", f"say {SECRET}", labels={"for": SECRET}, principal="ops")
        await run.wait_ended()
        return run.id, await exported(runtime, run.id, **options)


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


async def all_of(reader: Any, run_id: str) -> Any:
    return (
        await reader.snapshot(run_id),
        [record async for record in reader.timeline(run_id, full=True)],
        [entry async for entry in reader.events(run_id)],
        await reader.replay(run_id),
        await reader.list(),
    )


# What arrives


async def test_what_arrives_is_the_run_that_left(tmp_path: Path) -> None:
    store, file = Store(tmp_path / "runs.db"), tmp_path / "run.jsonl"
    run_id, data = await finished(store)
    file.write_bytes(data)

    async with open_reader(tmp_path / "runs.db") as there, open_reader(file) as here:
        arrived, left = await all_of(here, run_id), await all_of(there, run_id)
        artifact = next(line["digest"] for line in lines_of(data) if line["line"] == "artifact")
        assert await here.journal.artifact(artifact) == await there.journal.artifact(artifact)
        assert (here.exported, there.exported) == (True, False)

    assert arrived == left
    assert arrived[3].difference is None


async def test_the_same_run_gives_the_same_lines(store: Store) -> None:
    run_id, data = await finished(store)

    async with store.runtime(agents()) as runtime:
        assert await exported(runtime, run_id) == data


async def test_a_run_that_waits_arrives_with_what_it_waits_for(memory: Store, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    async with memory.runtime(agents(), policy=lambda _call, _run: Ask("may it?")) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        file.write_bytes(await exported(runtime, run.id))

    async with open_reader(file) as reader:
        snapshot = await reader.snapshot(run.id)

    assert snapshot.state == "SUSPENDED"
    assert [call.call_id for call in snapshot.waiting] == ["t1.c1", "t1.c2"]


async def test_a_run_that_is_set_apart_arrives_so(memory: Store, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    run_id, _ = await finished(memory)
    async with memory.opened() as journal:
        await journal.mark(run_id, "it is odd", now=1.0)
    async with memory.runtime(agents()) as runtime:
        file.write_bytes(await exported(runtime, run_id))

    async with open_reader(file) as reader:
        assert (await reader.snapshot(run_id)).set_apart == "it is odd"


async def test_an_exported_run_can_be_exported_again(memory: Store, tmp_path: Path) -> None:
    run_id, data = await finished(memory)
    (tmp_path / "run.jsonl").write_bytes(data)

    async with open_reader(tmp_path / "run.jsonl") as reader:
        again = b"".join([line async for line in reader.export(run_id)])

    assert again == data


async def test_large_outputs_stay_behind_if_they_are_to(memory: Store) -> None:
    _, data = await finished(memory, artifacts=False)

    lines = lines_of(data)
    assert lines[0]["without_artifacts"] is True
    assert "artifact" not in {line["line"] for line in lines}
    assert len(data) < 40_000 + 20_000


async def test_an_artifact_that_the_store_has_lost_is_named(memory: Store) -> None:
    run_id, data = await finished(memory)
    (name,) = [line["digest"] for line in lines_of(data) if line["line"] == "artifact"]
    memory.journal._artifacts.clear()

    async with memory.runtime(agents()) as runtime:
        lines = lines_of(await exported(runtime, run_id))

    assert lines[-1]["missing"] == [name]


async def test_exporting_a_run_that_is_not_there_is_refused(memory: Store) -> None:
    async with memory.runtime() as runtime:
        with pytest.raises(RunNotFound):
            await exported(runtime, "r-none")


async def test_a_run_that_is_deleted_while_it_is_exported_is_said_to_be_gone(memory: Store) -> None:
    run_id, _ = await finished(memory)

    async with memory.runtime(agents()) as runtime:
        lines = runtime.export(run_id)
        await anext(lines)
        await runtime.delete(run_id)

        with pytest.raises(RunNotFound):
            _ = [line async for line in lines]


# What is refused where it arrives


def written(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    return file


async def refusal(file: Path, data: bytes) -> ExportUnusable:
    written(file, data)
    with pytest.raises(ExportUnusable) as refused:
        async with open_reader(file):
            pass
    assert str(file) in str(refused.value)
    assert f"line {refused.value.line}:" in str(refused.value)
    return refused.value


async def test_an_export_that_is_cut_anywhere_is_refused_with_the_line(memory: Store, tmp_path: Path) -> None:
    _, data = await finished(memory, artifacts=False)
    lines = data.splitlines(keepends=True)

    for count in range(1, len(lines)):
        between = await refusal(tmp_path / "run.jsonl", b"".join(lines[:count]))
        assert (between.line, "cut" in between.reason) == (count + 1, True)
        within = await refusal(tmp_path / "run.jsonl", b"".join(lines[:count]) + lines[count][: len(lines[count]) // 2])
        assert (within.line, "in the middle" in within.reason) == (count + 1, True)


async def test_an_export_that_was_edited_is_refused_with_the_line(memory: Store, tmp_path: Path) -> None:
    _, data = await finished(memory)
    lines = data.splitlines(keepends=True)

    for number, line in enumerate(lines, 1):
        for old, new in ((b"1", b"2"), (b'":', b'" :')):
            edited = [*lines[: number - 1], line.replace(old, new, 1), *lines[number:]]
            refused = await refusal(tmp_path / "run.jsonl", b"".join(edited)) if old != b"1" or number > 1 else None
            if refused is not None:
                assert (refused.line, "changed" in refused.reason) == (number, True)


@pytest.mark.parametrize(
    ("edit", "line", "reason"),
    [
        (lambda lines: [*lines[:3], *lines[4:]], 4, "taken away"),
        (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], 4, "moved"),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], 4, "added"),
        (lambda lines: [*lines, lines[-1]], None, "changed"),
        (lambda lines: [*lines, b"\n"], None, "no seal"),
        (lambda lines: lines[1:], 1, "does not begin an exported run"),
        (lambda _lines: [b"{}\n"], 1, "does not begin an exported run"),
        (lambda _lines: [b"{"], 1, "does not begin an exported run"),
        (lambda _lines: [b'{"line":"header","format":"geartrain run","version":1}\n'], 1, "no seal"),
    ],
)
async def test_lines_that_were_not_written_so_are_refused(
    edit: Any, line: int | None, reason: str, memory: Store, tmp_path: Path
) -> None:
    _, data = await finished(memory)
    lines = data.splitlines(keepends=True)

    refused = await refusal(tmp_path / "run.jsonl", b"".join(edit(lines)))

    assert refused.line == (line if line is not None else len(lines) + 1)
    assert reason in refused.reason


def sealed_anew(lines: list[Any]) -> bytes:
    """The lines as somebody would write them who seals what they have changed."""
    writer = Writer()
    return b"".join(map(writer.sealed, lines))


@pytest.mark.parametrize(
    ("change", "line", "reason"),
    [
        (lambda lines: lines.pop(3), 4, "event 3 follows event 1"),
        (lambda lines: lines.pop(1), None, "not as many lines"),
        (lambda lines: lines[1].update(digest="0" * 32), 2, "does not have the digest"),
        (lambda lines: lines[0].update(run=""), 1, "run_id"),
        (lambda lines: lines[0].pop("head"), 1, "none of this format"),
        (lambda lines: lines.insert(2, lines[0]), 3, "begins another run"),
        (lambda lines: lines.append(lines[1]), None, "after the end"),
        (lambda lines: lines[2].update(line="poem"), 3, "none of this format"),
    ],
)
async def test_lines_that_make_no_run_are_refused_although_they_are_sealed(
    change: Any, line: int | None, reason: str, memory: Store, tmp_path: Path
) -> None:
    _, data = await finished(memory, artifacts=False)
    lines = [{key: value for key, value in line.items() if key != "seal"} for line in lines_of(data)]
    for each in lines:  # a spec's digest is that of its one canonical form
        if each["line"] == "spec":
            each["body"] = msgspec.Raw(msgspec.json.encode(each["body"], order="sorted"))
    count = len(lines)
    change(lines)

    refused = await refusal(tmp_path / "run.jsonl", sealed_anew(lines))

    assert reason in refused.reason
    assert line is None or refused.line == line
    assert refused.line <= count + 1


async def test_an_export_of_a_newer_format_is_refused_and_says_who_wrote_it(memory: Store, tmp_path: Path) -> None:
    _, data = await finished(memory)
    file = tmp_path / "run.jsonl"
    file.write_bytes(data.replace(b'"version":1,"geartrain":"', b'"version":2,"geartrain":"9.', 1))

    with pytest.raises(FormatUnknown, match=r"version 2 \(written by geartrain 9") as refused:
        async with open_reader(file):
            pass

    assert "up to version 1" in str(refused.value)


async def test_an_export_with_an_event_of_a_newer_version_is_read_up_to_there(memory: Store, tmp_path: Path) -> None:
    run_id, _ = await finished(memory)
    rows = memory.journal._runs[run_id].events
    rows[-1] = msgspec.structs.replace(rows[-1], type="Transcended", body=b'{"type":"Transcended"}')
    memory.journal._runs[run_id].checkpoint = None
    async with memory.runtime(recover="none") as runtime:
        (tmp_path / "run.jsonl").write_bytes(await exported(runtime, run_id))

    async with open_reader(tmp_path / "run.jsonl") as reader:
        report, stepper = await reader.replay(run_id), await reader.steps(run_id)

    assert report.difference is not None
    assert report.difference.seq == len(rows)
    assert "Transcended" in report.difference.reason
    assert (len(stepper), "Transcended" in stepper.problem) == (len(rows) - 1, True)


async def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with pytest.raises(ExportUnusable, match="cannot be read"):
        await open_export(file)


async def test_a_first_line_that_does_not_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = written(tmp_path / "long.jsonl", b'{"line":"header","format":"geartrain run","x":"')
    with file.open("ab") as rest:
        rest.truncate(1 << 30)
    tracemalloc.start()
    with pytest.raises(ExportUnusable, match="line 1: it does not begin an exported run"):
        await open_reader(file).__aenter__()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000_000


async def test_no_byte_of_an_export_can_be_changed_unseen(memory: Store) -> None:
    _, data = await finished(memory, artifacts=False)

    @given(at=st.integers(0, len(data) - 1), byte=st.integers(0, 255))
    def changed(at: int, byte: int) -> None:
        edited = data[:at] + bytes([byte]) + data[at + 1 :]
        if edited != data and edited.rstrip(b"\n") != data.rstrip(b"\n"):
            with pytest.raises((ExportUnusable, FormatUnknown)):
                read_lines(edited.splitlines(keepends=True), "run.jsonl")

    changed()


# What is left out


RULES = ["secrets", f"text:{SECRET}"]


async def left_out(tmp_path: Path, data: bytes, run_id: str) -> Any:
    file = tmp_path / "run.jsonl"
    file.write_bytes(data)
    async with open_reader(file) as reader:
        report = await reader.replay(run_id)
        assert report.difference is None, report
        return await reader.snapshot(run_id), [record async for record in reader.timeline(run_id, full=True)]


async def test_what_is_left_out_is_nowhere_and_the_run_still_goes_the_way_it_went(store: Store, tmp_path: Path) -> None:
    run_id, data = await finished(store, redact=RULES)

    snapshot, _ = await left_out(tmp_path, data, run_id)

    assert SECRET.encode() not in data
    assert snapshot.answer == "I know [redacted 1] now"
    assert lines_of(data)[0]["redacted"] == ["secrets", "text"]
    assert lines_of(data)[0].get("lengths_kept") is None


async def test_a_digest_of_what_is_left_out_does_not_tell_it(memory: Store) -> None:
    run_id, whole = await finished(memory)

    async with memory.runtime(agents()) as runtime:
        parts = await exported(runtime, run_id, redact=[f"text:{SECRET}"])

    before, after = lines_of(whole), lines_of(parts)
    assert before[1]["digest"] != after[1]["digest"]
    started = [line["body"] for line in (*before, *after) if line.get("type") == "RunStarted"]
    assert started[0]["request"] != started[1]["request"]
    assert started[1]["spec"] == after[1]["digest"]
    assert {line["digest"] for line in before if line["line"] == "artifact"}.isdisjoint(
        line["digest"] for line in after if line["line"] == "artifact"
    )
    assert {line["digest"] for line in before if line.get("outside")}.isdisjoint(
        line["digest"] for line in after if line.get("outside")
    )


@pytest.mark.parametrize("edited", [None, '{"user": "desk", "password": "edited-secret"}'])
async def test_a_decision_about_arguments_that_are_left_out_is_still_about_them(
    edited: str | None, memory: Store, tmp_path: Path
) -> None:
    again = calling("login", json.dumps({"user": "walter", "password": "other"}))
    agent = an_agent([[LOGIN], [LOGIN, again], "done"], login)
    async with memory.runtime(agent, policy=lambda _call, _run: Ask("?")) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        await run.approve(
            "t1.c1",
            by="ops",
            arguments=edited,
            arguments_digest=rest.waiting[0].arguments_digest,
            remember="run",
        )
        rest = await run.wait_at_rest()
        for call in rest.waiting:
            await run.approve(call.call_id, by="ops", arguments_digest=call.arguments_digest)
        await run.wait_ended()
        data = await exported(runtime, run.id, redact=["secrets", "user", "ToolFinished.text"])

    snapshot, _ = await left_out(tmp_path, data, run.id)

    assert snapshot.state == "FINISHED"
    assert not [word for word in (SECRET, "edited-secret", "desk", "walter") if word.encode() in data]


async def test_a_result_that_is_left_out_takes_its_whole_output_along(memory: Store, tmp_path: Path) -> None:
    run_id, data = await finished(memory, redact=["ToolFinished.text"])

    await left_out(tmp_path, data, run_id)

    assert "artifact" not in {line["line"] for line in lines_of(data)}
    assert b"xxxxxxxx" not in data


async def test_an_output_that_is_no_text_stays_behind_when_texts_are_looked_into(memory: Store, tmp_path: Path) -> None:
    agent = an_agent([[calling("look", '{"size": 40000}')], "done"], look)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        (name,) = memory.journal._artifacts
        memory.journal._artifacts[name] = b"\xff\xfe" * 100
        data = await exported(runtime, run.id, redact=["secrets"])

    await left_out(tmp_path, data, run.id)
    assert "artifact" not in {line["line"] for line in lines_of(data)}


async def test_lengths_are_kept_if_the_run_goes_by_them(memory: Store, tmp_path: Path) -> None:
    uncounted = ModelReply(calls=(LOOK,))  # so that its tokens are estimated from the sizes of texts
    agent = an_agent([uncounted] * 4, look, budget=Budget(max_tokens=6_000))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        data = await exported(runtime, run.id, redact=["text:x+"])

    snapshot, _ = await left_out(tmp_path, data, run.id)

    assert snapshot.error is not None
    assert snapshot.error["code"] == "token_budget_exceeded"
    assert lines_of(data)[0]["lengths_kept"] is True
    assert b"xxxx" not in data


@pytest.mark.parametrize("rule", ["status", "tool", "*.verdict"])
async def test_nothing_is_exported_if_the_run_would_go_another_way(rule: str, memory: Store) -> None:
    run_id, _ = await finished(memory)

    async with memory.runtime(agents()) as runtime:
        with pytest.raises(RedactionRefused) as refused:
            await anext(runtime.export(run_id, redact=[rule]))

    assert refused.value.run_id == run_id
    assert f"event {refused.value.seq}" in str(refused.value)


async def test_a_rule_that_is_none_exports_nothing(memory: Store) -> None:
    run_id, _ = await finished(memory)

    async with memory.runtime(agents()) as runtime:
        with pytest.raises(InvalidValue):
            await exported(runtime, run_id, redact=["text:("])


async def test_a_run_that_goes_another_way_by_itself_is_exported_as_it_is(memory: Store, tmp_path: Path) -> None:
    run_id, _ = await finished(memory)
    rows = memory.journal._runs[run_id].events
    rows[2] = msgspec.structs.replace(rows[2], path="OBSERVE")
    async with memory.runtime(agents()) as runtime:
        data = await exported(runtime, run_id, redact=RULES)
    (tmp_path / "run.jsonl").write_bytes(data)

    async with open_reader(tmp_path / "run.jsonl") as reader:
        report = await reader.replay(run_id)

    assert report.difference is not None
    assert report.difference.seq == 3
    assert SECRET.encode() not in data


@pytest.mark.parametrize("rule", [f"text:{SECRET}", "text", "input", "payload", "text:input|answer", "arguments"])
async def test_texts_that_were_judged_are_left_out_though_approvals_name_their_digests(store: Store, rule: str) -> None:
    @tool(read_only=True)
    async def traces(context: ToolContext) -> str:
        """Trace a secret."""
        context.trace("sent", name=SECRET, deep={"id": SECRET})
        return "ok"

    def ask(_text: str, _run: Any) -> Any:
        return Ask("look")

    replies = [[calling("traces")], f"I know {SECRET}"]
    agent = an_agent(replies, traces, input_guardrails=[ask], output_guardrails=[ask])
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", f"say {SECRET}")
        for edited in (None, f'{{"text": "that is {SECRET}"}}'):
            (call,) = (await run.wait_at_rest()).waiting
            digest = call.arguments_digest
            await run.approve(call.call_id, by="ops", arguments_digest=digest, arguments=edited)
        assert (await run.wait_ended()).answer == f"that is {SECRET}"
        if rule == "arguments":
            with pytest.raises(RedactionRefused):  # an edited text is none without its text
                await exported(runtime, run.id, redact=[rule])
            return
        lines = await exported(runtime, run.id, redact=[rule])
        if rule.endswith(SECRET):
            assert SECRET.encode() not in lines
        if rule == "payload":
            assert b'"deep"' not in lines
