"""A web service with agents inside: the runtime lives in the application's lifespan, approvals are routes of its own.

uvicorn examples.web_service:app                                   (needs: pip install starlette uvicorn)
curl -d '{"text": "Order 17 came broken"}' localhost:8000/runs
curl -d '{"approve": true, "by": "ops"}' localhost:8000/runs/RUN/calls/t1.c1
curl localhost:8000/runs/RUN
"""

import contextlib
import os
from collections.abc import AsyncIterator

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geartrain import Agent, GeartrainError, RunHandle, Runtime, ScriptedModel, tool
from geartrain.models import call


@tool
async def refund(order: int) -> str:
    """Pay an order back."""
    return f"order {order} is paid back"


model = ScriptedModel([[call("refund", order=17)], "Your money is on its way."])
desk = Agent("desk", model=model, tools=[refund], on_denied="tell")


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with Runtime.open(os.environ.get("STORE", "service.db"), agents=[desk]) as app.state.runtime:
        yield


async def state_of(run: RunHandle) -> Response:
    await run.wait_at_rest()
    return Response(msgspec.json.encode(await run.snapshot()), media_type="application/json")


async def start(request: Request) -> Response:
    text, key = (await request.json())["text"], request.headers.get("idempotency-key")
    return await state_of(await request.app.state.runtime.start(desk, text, idempotency_key=key))


async def show(request: Request) -> Response:
    return await state_of(await request.app.state.runtime.get(request.path_params["run"]))


async def decide(request: Request) -> Response:
    run = await request.app.state.runtime.get(request.path_params["run"])
    body = await request.json()
    act = run.approve if body["approve"] else run.deny
    await act(request.path_params["call"], by=body["by"], reason=body.get("reason", ""))
    return await state_of(run)


async def waiting(request: Request) -> Response:
    calls = [call async for call in request.app.state.runtime.approvals()]
    return Response(msgspec.json.encode(calls), media_type="application/json")


async def refused(_request: Request, error: Exception) -> Response:
    return Response(msgspec.json.encode({"error": str(error)}), 409, media_type="application/json")


app = Starlette(
    routes=[
        Route("/runs", start, methods=["POST"]),
        Route("/runs/{run}", show),
        Route("/runs/{run}/calls/{call}", decide, methods=["POST"]),
        Route("/approvals", waiting),
    ],
    lifespan=lifespan,
    exception_handlers={GeartrainError: refused},
)
