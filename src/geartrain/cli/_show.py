"""`show`, `list` and `replay`: reading a store, also while another process owns it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from geartrain.cli._acts import Setting
from geartrain.cli._agents import RESEARCHER, cast_of
from geartrain.cli._differences import differences
from geartrain.cli._errors import AppUnusable
from geartrain.cli._given import Given, opened
from geartrain.cli._outcome import (
    EXIT_CODES,
    FAILED,
    Way,
    advice,
    command_line,
    next_steps,
    reasons,
    summary,
    tree_steps,
    waits_of,
)
from geartrain.cli._screen import Screen
from geartrain.cli._stores import find_run, store_to_read
from geartrain.cli._text import one_line, safe
from geartrain.cli._timeline import line_of, local_time, shown_time
from geartrain.cli._why import stuck_line, why_rows
from geartrain.errors import FormatUnknown, GeartrainError, UsageError
from geartrain.limits import Limits
from geartrain.machine import AgentSpec
from geartrain.persistence import RunCorrupt
from geartrain.persistence.sqlite import StoreOwner, store_owner
from geartrain.runtime import Agent, ReplayReport, RunReader, RunSnapshot, RunSummary, StuckRun, open_reader
from geartrain.trace import TraceRecord

_PAGE: Final = 500
_NO_WAY: Final = Way()


async def show(setting: Setting, given: str, *, full: bool) -> int:
    """Print one run and its timeline; return 1 if what is stored of it is damaged, else 0."""
    shown = Timeline(setting.screen, full=full)
    async with opened(setting, given) as one:
        reader, run_id = one.reader, one.run_id
        damage = await _head(setting, one)
        try:
            async for record in reader.timeline(run_id, full=full):
                shown.take(record)
        except (RunCorrupt, FormatUnknown) as error:
            damage = error
            if not shown.count:
                async for record in _raw(reader, run_id):
                    shown.take(record)
    shown.finish()
    if damage is not None:
        setting.screen.say(f"geartrain: {damage}; above is what can be read", "red")
        return FAILED
    return 0


async def _head(setting: Setting, one: Given) -> GeartrainError | None:
    """Print how a run stands, unless JSON is wanted; return what is wrong with it if it cannot be read."""
    try:
        snapshot = await one.reader.snapshot(one.run_id)
    except (RunCorrupt, FormatUnknown) as error:
        if not setting.screen.json:
            setting.screen.answer(f"{'run':<11}{one.run_id}\n{'store':<11}{one.place.path}")
        return error
    if not setting.screen.json:
        await _print_header(setting, one, snapshot)
    return None


async def _raw(reader: RunReader, run_id: str) -> AsyncIterator[TraceRecord]:
    """Yield the events of a damaged journal one by one, as they are stored, up to the first that cannot be read."""
    after = 0
    try:
        while rows := await reader.journal.read(run_id, after=after, limit=1):
            row = rows[0]
            after = row.seq
            payload = {"id": row.id, "path": row.path.replace(">", " > ")}
            yield TraceRecord(run_id=run_id, event=row.type, ts=row.time, seq=row.seq, payload=payload)
    except RunCorrupt:  # it was named already
        return


class Timeline:
    """Prints records under the date of their day, each event's time and number once; or keeps them, for JSON."""

    def __init__(self, screen: Screen, *, full: bool) -> None:
        self._screen = screen
        self._full = full
        self._kept: list[TraceRecord] = []
        self._day = ""
        self._seq = -1
        self.count = 0

    def take(self, record: TraceRecord) -> None:
        """Take the next record."""
        self.count += 1
        if self._screen.json:
            self._kept.append(record)
        else:
            self._print(record)

    def finish(self) -> None:
        """Print what was kept."""
        if self._screen.json:
            self._screen.print_json(self._kept)

    def _print(self, record: TraceRecord) -> None:
        moment = local_time(record.ts)
        if (day := f"{moment:%Y-%m-%d %Z}") != self._day:
            self._day = day
            self._screen.answer(f"\n{day}")
        head = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d} {record.seq:>5}"
        self._screen.answer(f"{head if record.seq != self._seq else ' ' * len(head)}  {line_of(record)}")
        self._seq = record.seq
        for line in crash_lines(record):
            self._screen.answer(f"{' ' * len(head)}    | {line}")
        for message in record.payload.get("saw", ()) if self._full else ():
            for line in _message_lines(message):
                self._screen.answer(f"{' ' * len(head)}    | {line}")


def crash_lines(record: TraceRecord) -> list[str]:
    """Return the event that was set aside and where it failed, of a record that says so."""
    if record.event != "run_quarantined":
        return []
    payload = record.payload
    aside = [f"set aside: {payload.get('aside_body', '')}"] if payload.get("aside_body") else []
    return [safe(line) for text in [*aside, payload.get("traceback", "")] for line in str(text).splitlines()]


def _message_lines(message: dict[str, Any]) -> list[str]:
    """Return a message as the model saw it, all of it, under what it is, its size, and how it was shortened."""
    tool = f" {message['tool']} {message.get('call_id', '')}" if message.get("tool") else ""
    about = [
        *([f"{message['size']:,} bytes"] if "size" in message else []),
        *([message["shortened"]] if message.get("shortened") else []),
        *([f"told by {message['provider']}"] if message.get("provider") else []),
        *(["pinned"] if message.get("pinned") else []),
    ]
    lines = [f"[{message['role']}{tool}] {', '.join(about)}".rstrip(), *safe(message["text"]).split("\n")]
    return [*lines, *(f"call {call['id']} {call['tool']} {call['arguments']}" for call in message.get("calls", ()))]


async def _print_header(setting: Setting, one: Given, snapshot: RunSnapshot) -> None:
    screen, waits = setting.screen, waits_of(snapshot)
    rows = [
        ("run", snapshot.id),
        ("state", f"{snapshot.state}{'  waits for ' + ', '.join(waits) if waits else ''}"),
        ("agent", snapshot.agent),
        ("parent", _above(snapshot)),
        ("input", snapshot.input),
        ("continues", snapshot.continues),
        ("labels", ", ".join(f"{key}={value}" for key, value in snapshot.labels.items())),
        ("context", ", ".join(f"{key}={value}" for key, value in snapshot.context.items())),
        ("answer", snapshot.answer or ""),
        *(("error", line) for line in [*reasons(snapshot), *advice(snapshot)]),
        ("used", summary(snapshot).split("  ", 2)[2]),
        ("started", shown_time(snapshot.created_at)),
        ("ended" if snapshot.ended else "last event", shown_time(snapshot.updated_at)),
        (one.place.how if one.exported else "store", str(one.place.path)),
    ]
    for name, value in rows:
        if value:
            first, *more = safe(str(value)).split("\n")
            screen.answer(f"{name:<11}{first}")
            for line in more:
                screen.answer(f"{'':<11}{line}")
    if not (snapshot.ended or one.exported):
        for name, line in why_rows(await one.reader.standing(one.run_id)):
            screen.answer(f"{name:<11}{line}")
    if not one.exported:  # what is to be done next, and with which code, its store knows
        await _print_next(setting, one, snapshot)


def _above(snapshot: RunSnapshot) -> str:
    """Return for whom a run is at work: its parent, and the root if that is another one."""
    return snapshot.parent + (
        f", below root {snapshot.root}" if snapshot.root not in (snapshot.id, snapshot.parent) else ""
    )


async def _print_next(setting: Setting, one: Given, snapshot: RunSnapshot) -> None:
    screen, place = setting.screen, one.place
    recorded = await one.reader.spec(snapshot.spec)
    agent = _agent_now(setting, recorded, snapshot.agent)
    changes = differences(recorded, agent.spec(Limits())) if recorded is not None and agent is not None else []
    for line in changes:
        screen.answer(f"{'spec':<11}changed since: {line}")
    way = setting.way(place)
    if agent is None and setting.app is None:
        way = with_app(way)
    owner = store_owner(place.path)
    if snapshot.sub_agents and not snapshot.ended:
        tree = await one.reader.tree(snapshot.id)
        waits, left = tree_steps(tree, way), left_behind(replace(snapshot, at_rest=tree.at_rest), owner, way)
    else:
        waits, left = next_steps(snapshot, way), left_behind(snapshot, owner, way)
    steps = [*waits, *kept_by(owner, waits), *left]
    for line in steps:
        screen.answer(f"{'next':<11}{line}")
    if steps and agent is None:
        screen.answer(f"{'':<11}(agent {snapshot.agent!r} is not built in: MODULE:ATTR is the app that has it)")


def with_app(way: Way) -> Way:
    """Return *way* with a place for the app that has the agent."""
    return dataclasses.replace(way, options=(*way.options, "--app", "MODULE:ATTR"))


def _agent_now(setting: Setting, recorded: AgentSpec | None, name: str) -> Agent | None:
    try:
        return cast_of(setting.app, setting.folder, recorded=recorded).agents.get(name)
    except AppUnusable as error:  # showing a run must not depend on whether its code can be imported
        setting.screen.say(f"geartrain: {error}")
        return None


def kept_by(owner: StoreOwner | None, steps: Sequence[str]) -> list[str]:
    """Return what is to be said beside commands that are refused as long as a process has the store."""
    return [f"as long as {owner} has the store, only through it"] if owner is not None and steps else []


def left_behind(run: RunSnapshot | RunSummary, owner: StoreOwner | None, way: Way) -> list[str]:
    """Return what is to say of a run in the middle: who moves it, or how to go on as nobody does."""
    if isinstance(run, RunSummary) and run.delegates:  # only its tree can tell
        return [] if owner is not None else [f"see {command_line('show', run.id, way.to_look, '--tree')}"]
    if run.at_rest or run.state in EXIT_CODES or run.set_apart:
        return []
    if owner is not None:
        return [f"being moved by {owner}"]
    go_on = command_line("resume", run.id, way)
    if run.seq <= 1:
        return [f"not begun, its process is gone: {go_on}"]
    if run.ending:
        return [f"ending ({run.ending}), its process is gone: {go_on}"]
    return [f"interrupted, its process is gone: {go_on}"]


async def list_runs(
    setting: Setting,
    *,
    states: Sequence[str],
    agent: str | None,
    waiting: bool,
    limit: int | None,
    root: str | None = None,
) -> int:
    """Print runs, newest first; *limit* None prints all, *root* is any run of the tree that they are in. Returns 0."""
    if root is None:
        place = store_to_read(setting.store, setting.folder, setting.index)
    else:
        place, root = await find_run(root, setting.store, setting.folder, setting.index)
    found: list[RunSummary] = []
    async with open_reader(place.path) as reader:
        row = await reader.journal.head(root) if root is not None else None
        root = (row.head.root if row is not None else None) or root
        after: tuple[float, str] | None = None
        while limit is None or len(found) < limit:
            page = _PAGE if limit is None else min(_PAGE, limit - len(found))
            rows = await reader.list(after=after, limit=page, states=states, agent=agent, waiting=waiting, root=root)
            found += rows
            if len(rows) < page:
                break
            after = (rows[-1].created_at, rows[-1].id)
        totals = None if setting.screen.json else await reader.totals()
    found = found[:limit]
    if setting.screen.json:
        setting.screen.print_json(found)
    elif found:
        _print_table(found, store_owner(place.path), setting.way(place))
    else:
        setting.screen.tell(f"no run{' fits' if states or agent or waiting or root else ''} in {place.path}")
    if limit is not None and len(found) == limit:
        setting.screen.tell(f"the newest {limit:,}; --all shows all, --limit N another number", "dim")
    if found and totals is not None:
        from geartrain.cli._keep import foot  # noqa: PLC0415 - only a list has it

        setting.screen.tell(foot(totals), "dim")
    return 0


async def list_stuck(setting: Setting, *, limit: int | None) -> int:
    """Print the runs that do not get on; *limit* None prints all. Returns 0."""
    place = store_to_read(setting.store, setting.folder, setting.index)
    found: list[StuckRun] = []
    async with open_reader(place.path) as reader:
        async for run in reader.stuck():
            found.append(run)
            if limit is not None and len(found) >= limit:
                break
    screen = setting.screen
    if screen.json:
        screen.print_json(found)
        return 0
    for run in found:
        screen.answer(f"{run.run_id}  {run.state}  {one_line(run.agent, 60)}  {stuck_line(run)}")
    if not found:
        screen.tell(f"no run is stuck in {place.path}")
    elif len(found) == limit:
        screen.tell(f"the first {limit:,}; --all shows all, --limit N another number", "dim")
    return 0


def _print_table(rows: Sequence[RunSummary], owner: StoreOwner | None, way: Way) -> None:
    from rich.console import Console  # noqa: PLC0415 - only a table needs it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "state", "agent", "started", "turns", "tokens", "note"):
        right = name in ("turns", "tokens")
        # The id is what the next command needs, so it is never cut.
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "note", overflow="fold")
    for row in rows:
        tokens = row.input_tokens + row.output_tokens
        cells = (
            row.id,
            row.state,
            row.agent,
            shown_time(row.created_at),
            f"{row.turn_count}",
            f"{tokens:,}",
            note(row, owner, way if way.before or row.agent == RESEARCHER else with_app(way)),
        )
        table.add_row(*(Text(one_line(cell, 200)) for cell in cells))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=1_000)
    try:
        console.print(table)
    except SystemExit:  # so rich ends if nobody reads; it is no failure
        raise BrokenPipeError from None


def note(row: RunSummary, owner: StoreOwner | None = None, way: Way = _NO_WAY) -> str:
    """Return what is special about a run: set apart, waiting for something, failed, or left in the middle."""
    if row.set_apart:
        return f"set apart: {row.set_apart}"
    below = [f"below {row.root}"] if row.holds and row.root not in (None, row.id) else []
    return ", ".join([*row.holds, *below, *left_behind(row, owner, way)]) or row.error or ""


async def replay_run(setting: Setting, given: str) -> int:
    """Fold one run's journal again; return 0 if it leads the same way, else 1."""
    async with opened(setting, given) as one:
        report = await one.reader.replay(one.run_id)
    if setting.screen.json:
        setting.screen.print_json(report)
    else:
        setting.screen.answer(report_line(report))
    return FAILED if report.difference is not None else 0


async def replay_all(setting: Setting) -> int:
    """Fold the journals of all runs again; return 1 if one leads another way or cannot be read, else 0."""
    place = store_to_read(setting.store, setting.folder, setting.index)
    screen = setting.screen
    reports: list[Any] = []
    wrong = 0
    async with open_reader(place.path) as reader:
        total = (await reader.statistics()).runs
        async for row in _all_runs(reader):
            try:
                report = await reader.replay(row.id)
                wrong += report.difference is not None
                line = report_line(report)
                reports.append(report)
            except UsageError:
                raise
            except GeartrainError as error:
                wrong += 1
                line = safe(str(error))
                reports.append({"run_id": row.id, "error": str(error)})
            if not screen.json:
                screen.progress("")
                screen.answer(line)
            screen.progress(f"{len(reports):,} of {total:,} runs")
    screen.progress("")
    if screen.json:
        screen.print_json(reports)
    screen.tell(f"{len(reports):,} runs replayed, {wrong:,} with a difference", "red" if wrong else "green")
    return FAILED if wrong else 0


async def _all_runs(reader: RunReader) -> AsyncIterator[RunSummary]:
    after: tuple[float, str] | None = None
    while rows := await reader.list(after=after, limit=_PAGE):
        for row in rows:
            yield row
        after = (rows[-1].created_at, rows[-1].id)


def report_line(report: ReplayReport) -> str:
    """Return what a replay found, in one line."""
    difference = report.difference
    if difference is None:
        return f"{report.run_id}: no difference in {report.events:,} events, {report.state}"
    recorded, found = (" > ".join(path) or "nothing" for path in (difference.recorded, difference.found))
    reason = f" ({one_line(difference.reason, 300)})" if difference.reason else ""
    return (
        f"{report.run_id}: first difference at event {difference.seq} ({difference.event}): "
        f"recorded {safe(recorded)}, found {safe(found)}{reason}"
    )
