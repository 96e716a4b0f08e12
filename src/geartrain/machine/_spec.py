"""An agent's definition as data: all that the step needs to know of it, stored once under its digest.

The step uses the recorded spec; effects use today's code, found by name. So code may change between two steps of a
run without changing what its journal means. Defaults are written out, so that a later default changes no older spec.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import msgspec

from geartrain.errors import FormatUnknown, InvalidValue
from geartrain.ids import digest
from geartrain.limits import UNLIMITED, Limits, Unlimited
from geartrain.machine._stuck_rules import StuckRules
from geartrain.machine._termination import Condition
from geartrain.machine._values import Usage, Value

# Rules of ours that change what a step does get a new number; a spec keeps the number it was made under.
# 2: nothing starts after the deadline, whatever the timer does; wrapping up refuses what has not started, and cuts off
# reads if it is time that is used up; every hold expires; a policy that twice gives no verdict counts as Ask; an
# estimated call costs what tokens have cost so far; the error of a limit says where the run was and what it had used.
RULES_VERSION: Final = 2


# What of a budget is counted, not measured.
_WHOLE: Final = ("max_turns", "max_tool_failures", "max_tokens", "max_tool_calls")


def _need_finite(name: str, value: float) -> None:
    """Refuse what JSON cannot hold: an infinity would be stored as null."""
    if not 0 < value < math.inf:
        raise InvalidValue(name, "more than 0 and finite", value)


class ToolSpec(Value, frozen=True, kw_only=True, omit_defaults=False):
    """A tool as the machine knows it.

    `kind` ask_user is the tool by which an agent asks its user something and waits; by publish and wait_for the runs of
    a tree tell each other something. `verify` says whether the
    tool can find out whether a write of its own was done. `parameters` is the JSON Schema of its arguments.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    kind: Literal["function", "ask_user", "publish", "wait_for"] = "function"
    read_only: bool = False
    idempotent: bool = False
    verify: bool = False
    external: bool = False
    timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        _need_finite("timeout_seconds", self.timeout_seconds)


class Budget(Value, frozen=True, kw_only=True, omit_defaults=False):
    """What a run may use. `UNLIMITED` lifts a limit. A limit is reached by its n-th unit.

    `max_seconds` counts active time only: neither time suspended nor time in which no process had the run.
    `max_cost` is in the unit of the agent's price (or of what its model says that a call has cost).
    """

    max_turns: int | Unlimited = 20
    max_seconds: float | Unlimited = 300.0
    max_tool_failures: int | Unlimited = 3
    max_tokens: int | Unlimited = 80_000
    max_cost: float | Unlimited = UNLIMITED
    max_tool_calls: int | Unlimited = UNLIMITED

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            # JSON has no infinity: stored, it would come back as null and the journal could not be read.
            if isinstance(value, Unlimited):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise InvalidValue(name, "more than 0 and finite, or UNLIMITED", value)
            if name in _WHOLE and not isinstance(value, int):
                raise InvalidValue(name, "a whole number, or UNLIMITED", value)


class Price(Value, frozen=True, kw_only=True, omit_defaults=False):
    """What a model's calls cost, in a unit of your own: for a million tokens in and out, and for each call.

    Raises:
        InvalidValue: A price is less than 0 or not finite.
    """

    input_per_million: float = 0.0
    output_per_million: float = 0.0
    per_call: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InvalidValue(name, "at least 0 and finite", value)

    def of(self, usage: Usage, calls: int = 1) -> float:
        """Return what *calls* with that *usage* together cost."""
        tokens = usage.input_tokens * self.input_per_million + usage.output_tokens * self.output_per_million
        return tokens / 1_000_000 + self.per_call * calls


class SubAgentSpec(Value, frozen=True, kw_only=True, omit_defaults=False):
    """Another agent that the model may call like a tool: a call starts a run of it.

    `budget` is the most that such a run gets (None: all that is left), `weight` its part in shares by weight.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    budget: Budget | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        _need_finite("weight", self.weight)


class ContextRules(Value, frozen=True, kw_only=True, omit_defaults=False):
    """How much of the history the next model call sees.

    The window keeps the system prompt, pinned messages and the newest input, and never parts a call from its result.
    Once it is full, so much of it is dropped at once that the share `window_slack` of it is free.
    With `summarise`, the oldest part is summarised by the model once there are more than `summarise_turns` turns
    in the context, or more than `summarise_share` of the token limit is used by one request. After a summary that
    failed or was no use, `summary_pause_turns` turns pass before the next is asked for.
    With `shrink`, results of more than `shrink_bytes` become one line each, save those of the newest `shrink_turns`
    turns: as many turns at once, so that not every request differs from the one before in its beginning.

    These defaults are what a spec that says nothing means, and that is how old specs are read: what an `Agent` takes
    where you give no rules is more (it shrinks, and summarises if its model can).

    Raises:
        InvalidValue: A number is less than it can be.
    """

    messages: int = 200
    bytes: int = 1024 * 1024
    result_bytes: int = 16 * 1024
    summarise: bool = False
    summarise_turns: int = 20
    summarise_share: float = 0.5
    summary_pause_turns: int = 0
    window_slack: float = 0.0
    shrink: bool = False
    shrink_turns: int = 6
    shrink_bytes: int = 1024

    def __post_init__(self) -> None:
        for name, least in (("shrink_turns", 1), ("shrink_bytes", 1), ("summary_pause_turns", 0)):
            if getattr(self, name) < least:
                raise InvalidValue(name, f"at least {least}", getattr(self, name))
        if not 0 <= self.window_slack < 1:
            raise InvalidValue("window_slack", "from 0 to less than 1", self.window_slack)


class StepLimits(Value, frozen=True, kw_only=True, omit_defaults=False):
    """The limits that the step itself keeps, recorded so that a replay under other settings goes the same way.

    `open_calls` bounds the calls that one turn may have open, also where the model is consulted after each result.
    `external_seconds` bounds the wait for a model outside; None, as specs from before it was recorded have it, keeps
    all rules of outside waits as they were then. `sub_agents_at_once` None likewise keeps the rules for sub-agents from
    before they had shares and were bounded: what they used was then their parent's own use, and their wait active time.
    """

    calls_per_reply: int = 64
    open_calls: int = 1_000
    anomalies: int = 3
    queued_inputs: int = 100
    grace_seconds: float = 5.0
    approval_expiry_seconds: float = 7 * 86_400.0
    model_seconds: float = 120.0
    model_attempts: int = 3
    write_attempts: int = 3
    policy_seconds: float = 5.0
    context_seconds: float = 5.0
    dwell_seconds: float = 30.0
    external_seconds: float | None = None
    sub_agents_at_once: int | None = None
    sub_agent_depth: int = 8

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None:
                _need_finite(name, value)

    @classmethod
    def of(cls, limits: Limits) -> StepLimits:
        """Return the part of a runtime's *limits* that goes into a spec."""
        return cls(
            calls_per_reply=limits.calls_per_reply,
            open_calls=limits.sub_agent_width,
            anomalies=limits.anomalies_per_run,
            queued_inputs=limits.queued_inputs,
            grace_seconds=limits.grace_seconds,
            approval_expiry_seconds=limits.approval_expiry_seconds,
            model_seconds=limits.model_call_seconds,
            model_attempts=limits.model_attempts,
            write_attempts=limits.write_attempts,
            policy_seconds=limits.policy_seconds,
            context_seconds=limits.context_provider_seconds,
            dwell_seconds=limits.dwell_seconds,
            external_seconds=limits.external_seconds,
            sub_agents_at_once=limits.sub_agents_at_once,
            sub_agent_depth=limits.sub_agent_depth,
        )


class AgentSpec(Value, frozen=True, kw_only=True, omit_defaults=False):
    """Everything about an agent that the step needs.

    `stop_when` ends a run in addition to its budget. `consult` each_result asks the model again after each
    result while other calls still run (plans use it). `handoffs` are names of agents that may take the run over.
    `shares` says how the budget is cut for sub-agents that start at once (see `_ledger`).
    `guarded` says of which texts guardrails are asked: what is said to the run, the answer that it would finish with.
    `price` is that of the model, `summary_price` that of a summariser of its own; without one the model's own figures
    are the cost.
    `stuck` says what is done about a run that does not get on; None, as specs from before it was recorded have it, does
    nothing.
    `plan` is the digest of the plan that takes the model's turns, if one does: it says itself what may run side by
    side, so a write is no barrier to the calls after it, and its turns cost nothing.

    Raises:
        InvalidValue: Texts are guarded of an agent that is consulted after each result, or a plan is not.
    """

    name: str
    instructions: str = ""
    model: str = ""
    tools: tuple[ToolSpec, ...] = ()
    sub_agents: tuple[SubAgentSpec, ...] = ()
    handoffs: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    budget: Budget = Budget()
    stop_when: Condition | None = None
    on_denied: Literal["fail", "tell"] = "fail"
    on_budget: Literal["fail", "wrap_up", "suspend"] = "fail"
    consult: Literal["all_results", "each_result"] = "all_results"
    output_schema: dict[str, Any] | None = None
    max_output_tokens: int | Unlimited = UNLIMITED
    context: ContextRules = ContextRules()
    limits: StepLimits = StepLimits()
    rules_version: int = RULES_VERSION
    guarded: tuple[Literal["input", "answer"], ...] = ()
    price: Price | None = None
    summary_price: Price | None = None
    stuck: StuckRules | None = None
    plan: str = ""
    shares: Literal["weights", "on_demand"] = "weights"

    def __post_init__(self) -> None:
        if self.guarded and self.consult == "each_result":
            raise InvalidValue("guarded", "empty for an agent that is consulted after each result", self.guarded)
        if self.plan and self.consult != "each_result":
            raise InvalidValue("consult", "each_result for a plan", self.consult)

    def tool(self, name: str) -> ToolSpec | None:
        """Return the tool of that name, or None."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def sub_agent(self, name: str) -> SubAgentSpec | None:
        """Return the sub-agent of that name, or None."""
        return next((agent for agent in self.sub_agents if agent.name == name), None)


def encode_spec(spec: AgentSpec) -> bytes:
    """Return the spec's one canonical JSON form (keys sorted)."""
    return msgspec.json.encode(spec, order="sorted")


def spec_digest(spec: AgentSpec) -> str:
    """Return the digest under which a spec is stored."""
    return digest(encode_spec(spec))


def decode_spec(data: bytes) -> AgentSpec:
    """Return the spec stored as *data*.

    Raises:
        FormatUnknown: It is none of this version.
    """
    readable = f"specs of up to rules version {RULES_VERSION}"
    try:
        spec = msgspec.json.decode(data, type=AgentSpec)
    except (msgspec.DecodeError, UnicodeError, RecursionError, InvalidValue) as problem:
        raise FormatUnknown("agent spec", f"what does not fit ({problem})", readable) from problem
    if spec.rules_version > RULES_VERSION:
        raise FormatUnknown("agent spec", f"one of rules version {spec.rules_version}", readable)
    return spec
