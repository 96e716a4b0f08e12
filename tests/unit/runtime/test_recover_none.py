"""A runtime opened with `recover="none"` moves only the runs that are used."""

from __future__ import annotations

import asyncio

import pytest
from runtime_world import Ledger, Store, an_agent, calling

from geartrain.errors import EventRefused
from geartrain.limits import Limits
from geartrain.machine import Budget
from geartrain.models import answer
from geartrain.runtime import Ask


def ask(_call: object, _run: object) -> Ask:
    return Ask()


async def test_a_run_that_is_due_but_not_used_is_left_alone(store: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], answer("done")], ledger.read(seconds=1_000.0), budget=Budget(max_seconds=2.0))
    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(1.0)
    before = await store.rows(run.id)
    await asyncio.sleep(10.0)

    async with store.runtime(an_agent([answer("x")], name="another"), recover="none"):
        await asyncio.sleep(100.0)

    assert await store.rows(run.id) == before


async def test_a_run_that_is_used_is_woken_when_its_time_comes(store: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], answer("done")], ledger.read(seconds=25.0), budget=Budget(max_seconds=20.0))

    async with store.runtime(agent, recover="none") as runtime:
        run = await runtime.start(agent, "go")
        end = await run.wait_ended()

    assert end.error is not None
    assert end.error["code"] == "timeout"


async def test_an_approval_that_has_expired_is_not_approved_by_whoever_loads_its_run(
    store: Store, ledger: Ledger
) -> None:
    agent = an_agent([[calling("write")], answer("done")], ledger.write(), on_denied="tell")
    limits = Limits(approval_expiry_seconds=60.0)
    async with store.runtime(agent, policy=ask, limits=limits) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()
    await asyncio.sleep(100.0)

    async with store.runtime(agent, policy=ask, limits=limits, recover="none") as runtime:
        late = await runtime.get(run.id)
        with pytest.raises(EventRefused, match="expired"):
            await late.approve("t1.c1", by="somebody")
        await late.wait_ended()

    assert not ledger.done


async def test_runs_that_cannot_be_woken_hide_no_others(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("write")], answer("done")], ledger.write(), on_denied="tell")
    limits = Limits(approval_expiry_seconds=60.0)
    async with memory.runtime(agent, policy=ask, limits=limits) as runtime:
        runs = [await runtime.start(agent, "go") for _ in range(120)]
        for run in runs:
            await run.wait_at_rest()
    for stored in list(memory.journal._runs.values())[:110]:
        stored.events[1] = stored.events[1].__class__(
            **{f: getattr(stored.events[1], f) for f in stored.events[1].__struct_fields__} | {"version": 99}
        )

    async with memory.runtime(agent, policy=ask, limits=limits) as runtime:
        await asyncio.sleep(200.0)
        ended = [row for row in await runtime.list(limit=200) if row.state == "FINISHED"]

    assert len(ended) == 10
