"""Who restarts whom, how often, and in which order.

`Supervisor` and `ChildSpec` describe a tree of actors. The rules (`RestartLimit`, `Backoff`, `plan_restart`,
`comes_back`) are pure: whoever restarts something else asks them too.
"""

from geartrain.supervisor._backoff import NO_BACKOFF, Backoff
from geartrain.supervisor._errors import SpecRefused, WrongSpec
from geartrain.supervisor._report import CrashContext, CrashReport, Offender
from geartrain.supervisor._restart_limit import RestartLimit
from geartrain.supervisor._spec import ChildSpec, Shutdown, Supervisor
from geartrain.supervisor._strategy import Member, Plan, Restart, Strategy, comes_back, plan_restart

__all__ = [
    "NO_BACKOFF",
    "Backoff",
    "ChildSpec",
    "CrashContext",
    "CrashReport",
    "Member",
    "Offender",
    "Plan",
    "Restart",
    "RestartLimit",
    "Shutdown",
    "SpecRefused",
    "Strategy",
    "Supervisor",
    "WrongSpec",
    "comes_back",
    "plan_restart",
]
