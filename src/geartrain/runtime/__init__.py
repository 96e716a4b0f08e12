"""The runtime: run actors, their effects, recovery, and the door through which callers reach runs."""

from geartrain.runtime._agent import Agent
from geartrain.runtime._approvals import ApprovalHook
from geartrain.runtime._effects._effect import current_run
from geartrain.runtime._effects._executor import CallOutcome, Executor, LiveExecutor
from geartrain.runtime._effects._handoff import with_others
from geartrain.runtime._entry import SUB_AGENTS
from geartrain.runtime._handle import RunHandle
from geartrain.runtime._hub import ObserverStatistics, Watch, log_records
from geartrain.runtime._planned import Do, Done, Fail, Job, Plan, PlanChanged, PlanFailed
from geartrain.runtime._policy import (
    Allow,
    Ask,
    Change,
    Decision,
    Deny,
    Policy,
    PolicyCall,
    RunView,
    TextGuardrail,
    ToolGuardrail,
    default_policy,
)
from geartrain.runtime._providers import ContextProvider
from geartrain.runtime._reader import RunReader, open_reader
from geartrain.runtime._reading._runs import (
    JournalEntry,
    OpenCall,
    ReplayReport,
    RunSnapshot,
    RunSummary,
    SubAgentCall,
)
from geartrain.runtime._reading._standing import Awaited, Standing
from geartrain.runtime._reading._statistics import RunTotals
from geartrain.runtime._reading._stepper import Frame, Stepper
from geartrain.runtime._reading._stuck_runs import StuckRun
from geartrain.runtime._reading._tail import RunTail
from geartrain.runtime._reading._tree import QUEUED, RunTree
from geartrain.runtime._rules import Predicate, Rule, Rules, argument_below, argument_equals, argument_matches
from geartrain.runtime._runtime import Runtime, RuntimeStatistics
from geartrain.runtime._stall import LoopStall, LoopStatistics
from geartrain.runtime._travel._errors import ExportUnusable, RedactionRefused

__all__ = [
    "QUEUED",
    "SUB_AGENTS",
    "Agent",
    "Allow",
    "ApprovalHook",
    "Ask",
    "Awaited",
    "CallOutcome",
    "Change",
    "ContextProvider",
    "Decision",
    "Deny",
    "Do",
    "Done",
    "Executor",
    "ExportUnusable",
    "Fail",
    "Frame",
    "Job",
    "JournalEntry",
    "LiveExecutor",
    "LoopStall",
    "LoopStatistics",
    "ObserverStatistics",
    "OpenCall",
    "Plan",
    "PlanChanged",
    "PlanFailed",
    "Policy",
    "PolicyCall",
    "Predicate",
    "RedactionRefused",
    "ReplayReport",
    "Rule",
    "Rules",
    "RunHandle",
    "RunReader",
    "RunSnapshot",
    "RunSummary",
    "RunTail",
    "RunTotals",
    "RunTree",
    "RunView",
    "Runtime",
    "RuntimeStatistics",
    "Standing",
    "Stepper",
    "StuckRun",
    "SubAgentCall",
    "TextGuardrail",
    "ToolGuardrail",
    "Watch",
    "argument_below",
    "argument_equals",
    "argument_matches",
    "current_run",
    "default_policy",
    "log_records",
    "open_reader",
    "with_others",
]
