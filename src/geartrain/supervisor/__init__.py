"""Who restarts whom, how often, and in which order.

`Supervisor` and `ChildSpec` describe a tree of actors, `supervise` starts it, a `SupervisorRef` reaches it. The rules
(`RestartLimit`, `Backoff`, `plan_restart`, `comes_back`) are pure: whoever restarts something else asks them too.
"""

from geartrain.supervisor._backoff import NO_BACKOFF, Backoff
from geartrain.supervisor._child import ChildState, ChildStatistics
from geartrain.supervisor._errors import (
    ChildNotDown,
    ChildNotFound,
    ChildNotStarted,
    RestartsExhausted,
    SpecRefused,
    WrongSpec,
)
from geartrain.supervisor._ref import SupervisorRef, SupervisorStatistics, supervise
from geartrain.supervisor._report import CrashContext, CrashReport, Offender, traceback_of
from geartrain.supervisor._restart_limit import RestartLimit
from geartrain.supervisor._spec import ChildSpec, Shutdown, Supervisor
from geartrain.supervisor._strategy import Member, Plan, Restart, Strategy, comes_back, plan_restart
from geartrain.supervisor._tree import OnCrash

__all__ = [
    "NO_BACKOFF",
    "Backoff",
    "ChildNotDown",
    "ChildNotFound",
    "ChildNotStarted",
    "ChildSpec",
    "ChildState",
    "ChildStatistics",
    "CrashContext",
    "CrashReport",
    "Member",
    "Offender",
    "OnCrash",
    "Plan",
    "Restart",
    "RestartLimit",
    "RestartsExhausted",
    "Shutdown",
    "SpecRefused",
    "Strategy",
    "Supervisor",
    "SupervisorRef",
    "SupervisorStatistics",
    "WrongSpec",
    "comes_back",
    "plan_restart",
    "supervise",
    "traceback_of",
]
