"""An asyncio actor runtime for durable, replayable agent runs."""

from geartrain.actors import Actor, ActorGroup, ActorRef
from geartrain.errors import GeartrainError, InternalError, ResourceError, UsageError
from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import Budget, RunState, Usage
from geartrain.models import OfflineModel, ScriptedModel
from geartrain.runtime import Agent, Allow, Ask, Change, Deny, Rule, Rules, RunHandle, Runtime, RunView, open_reader
from geartrain.tools import Note, ToolContext, tool
from geartrain.version import VERSION

__version__ = VERSION

__all__ = [
    "UNLIMITED",
    "Actor",
    "ActorGroup",
    "ActorRef",
    "Agent",
    "Allow",
    "Ask",
    "Budget",
    "Change",
    "Deny",
    "GeartrainError",
    "InternalError",
    "Limits",
    "Note",
    "OfflineModel",
    "ResourceError",
    "Rule",
    "Rules",
    "RunHandle",
    "RunState",
    "RunView",
    "Runtime",
    "ScriptedModel",
    "ToolContext",
    "Usage",
    "UsageError",
    "open_reader",
    "tool",
]
