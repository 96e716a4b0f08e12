"""An asyncio actor runtime for durable, supervised, replayable agent runs.

The names below are loaded with their room, when the first of them is used: a worker process that runs one tool has no
need of a runtime.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from geartrain.version import VERSION

if TYPE_CHECKING:
    from geartrain.actors import Actor, ActorGroup, ActorRef
    from geartrain.errors import GeartrainError, InternalError, ResourceError, UsageError
    from geartrain.limits import UNLIMITED, Limits
    from geartrain.machine import Budget, Price, RunState, StuckRules, Usage
    from geartrain.models import OfflineModel, ScriptedModel
    from geartrain.orchestrator import Approval, FanOut, Graph, Pipeline, Step
    from geartrain.runtime import Agent, Allow, Ask, Change, Deny, Rule, Rules, RunHandle, Runtime, RunView, open_reader
    from geartrain.supervisor import Backoff, ChildSpec, RestartLimit, Supervisor
    from geartrain.tools import Note, ToolContext, tool

__version__ = VERSION

__all__ = [
    "UNLIMITED",
    "Actor",
    "ActorGroup",
    "ActorRef",
    "Agent",
    "Allow",
    "Approval",
    "Ask",
    "Backoff",
    "Budget",
    "Change",
    "ChildSpec",
    "Deny",
    "FanOut",
    "GeartrainError",
    "Graph",
    "InternalError",
    "Limits",
    "Note",
    "OfflineModel",
    "Pipeline",
    "Price",
    "ResourceError",
    "RestartLimit",
    "Rule",
    "Rules",
    "RunHandle",
    "RunState",
    "RunView",
    "Runtime",
    "ScriptedModel",
    "Step",
    "StuckRules",
    "Supervisor",
    "ToolContext",
    "Usage",
    "UsageError",
    "open_reader",
    "tool",
]

# Room: what of it is shown here, as in the imports above.
_ROOMS = {
    "actors": "Actor ActorGroup ActorRef",
    "errors": "GeartrainError InternalError ResourceError UsageError",
    "limits": "UNLIMITED Limits",
    "machine": "Budget Price RunState StuckRules Usage",
    "models": "OfflineModel ScriptedModel",
    "orchestrator": "Approval FanOut Graph Pipeline Step",
    "runtime": "Agent Allow Ask Change Deny Rule Rules RunHandle Runtime RunView open_reader",
    "supervisor": "Backoff ChildSpec RestartLimit Supervisor",
    "tools": "Note ToolContext tool",
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load the room that *name* is in, or is."""
    if name in _ROOMS:
        return import_module(f"geartrain.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"geartrain.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
