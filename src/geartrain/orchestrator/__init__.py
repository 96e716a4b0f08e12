"""Plans: code that coordinates agents, tools and approvals, durable like every other run."""

from geartrain.machine import Progress, StepProgress
from geartrain.orchestrator._approval import Approval
from geartrain.orchestrator._errors import PlanRefused, WrongPlan
from geartrain.orchestrator._fan_out import FanOut
from geartrain.orchestrator._graph import Graph
from geartrain.orchestrator._pipeline import Pipeline
from geartrain.orchestrator._step import Step
from geartrain.runtime import Do, Done, Fail, Job, Plan, PlanChanged, PlanFailed

__all__ = [
    "Approval",
    "Do",
    "Done",
    "Fail",
    "FanOut",
    "Graph",
    "Job",
    "Pipeline",
    "Plan",
    "PlanChanged",
    "PlanFailed",
    "PlanRefused",
    "Progress",
    "Step",
    "StepProgress",
    "WrongPlan",
]
