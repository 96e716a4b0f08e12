"""An agent as a user writes it: what becomes a recorded spec, and today's code behind it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, get_args

from msgspec.structs import replace

from geartrain.errors import FormatUnknown, InvalidValue
from geartrain.limits import UNLIMITED, Limits, Unlimited
from geartrain.machine import (
    EXTERNAL,
    HANDOFF_PREFIX,
    AgentSpec,
    Budget,
    Condition,
    ContextRules,
    Price,
    StepLimits,
    StuckRules,
    decode_spec,
    encode_spec,
    spec_digest,
)
from geartrain.models import Model, find_model
from geartrain.runtime._edge import clean_text
from geartrain.runtime._planned import PLAN_BUDGET, Plan, PlanModel, plan_digest
from geartrain.runtime._policy import TextGuardrail, ToolGuardrail
from geartrain.runtime._providers import ContextProvider, named_providers
from geartrain.runtime._sub_agents import (
    TEAM_BUDGET,
    Shares,
    checked_shares,
    checked_sub_agents,
    name_of,
    sub_agent_specs,
)
from geartrain.tools import Tool

T = TypeVar("T")
# What providers take as the name of a tool.
_OFFERED: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

# After a summary that was no use, so many turns pass before the next is asked for.
SUMMARY_PAUSE_TURNS: Final = 5
# Once it is full, this share of the window is emptied at once: the requests until it is full again begin alike.
WINDOW_SLACK: Final = 0.25
_USUAL_STUCK_RULES: Final = StuckRules()
_NOBODY: Final[Mapping[str, Agent]] = {}


class Agent:
    """A name, instructions, a model, tools and limits. Immutable; shared by any number of runs.

    `model` is a model client, or the name of a built-in one: "offline", or "external" for somebody outside who takes
    the turns. `on_denied` says whether a denied call ends the run ("fail") or is told to the model ("tell").
    `on_budget` says what a reached limit does: "fail" ends the run, "wrap_up" gives one last turn without tools,
    "suspend" waits until somebody raises the budget. `stop_when` adds conditions of your own to those of the budget.
    `window` bounds what a model call sees.

    `tool_guardrails` are asked about each call of a tool, in order and before the runtime's policy, like a policy: each
    may `Allow`, `Deny`, `Ask`, or `Change` the arguments. The strictest verdict wins. Those for texts are given the
    text and the run: `input_guardrails` all that is said to a run, before its model hears it; `output_guardrails` the
    answer, before the run finishes with it. A denied text ends the run (`input_denied`, `output_denied`), or, with
    `on_denied="tell"`, is not heard, or told to the model as a reply that could not be used; without its own input a
    run ends in any case. A guardrail that raises, takes longer than `limits.policy_seconds` or answers nonsense counts
    as `Ask`. Like a policy it decides and does nothing, may be asked again, and must not block unless it is
    asynchronous.

    `price` is what the model's calls cost, in a unit of your own, for `Budget.max_cost`; `summariser_price` that of the
    summariser, if it is another. It counts for estimated and lost calls as well, and what the model itself says of its
    cost does not count then. Without one the cost is what the model's replies say (`Usage.cost`), and `max_cost` needs
    a model client with an attribute `reports_cost` that is True; so it does of a summariser without a price. A
    sub-agent whose cost nothing tells is not started for a run whose cost is limited: its call is an error.

    `context` are providers: functions of a `RunView`, plain or async, that tell the model something before its first
    turn, and again after a handoff: a text, `Note`s, or None for nothing. They are asked one after the other, each
    within `limits.context_provider_seconds`, plain ones on a thread; what they tell is stored with the run, so a
    recovery asks none again. One that raises, takes too long or answers anything else fails the run
    (`context_failed`).

    Without a `window` of your own, large results of old turns shrink to a line each, and the oldest part is summarised
    once there are more than `limits.summarise_turns` turns in the context, or one request takes half of the tokens
    left: by `summariser`, or by the model itself unless it says `summarises = False`. With one, its rules are all
    that counts.

    `handoffs` are agents that may take a run over, each an `Agent` or the name of one that the runtime has: the model
    is offered `hand_off_to_NAME`, and with its calls done the run goes on under the other's instructions, tools, model
    and guardrails. The conversation, the budget and the run's id stay. An agent that is handed back to is given by
    name.

    `stuck` says when a run of this agent counts as stuck and what is then done about it: by default an answer that is
    overdue is asked for once more, and a model that repeats itself to no effect is told so and fails in the end. None
    does nothing about it.

    `sub_agents` are agents that the model may call like tools, each with `{"input": "…"}`: a call starts a run of its
    own, whose end is the call's result. Each is an `Agent` or the name of one that the runtime has, this very one
    included. `description` says what such an agent is for. The budget is one for the run and all that is below it:
    `shares` says how what is left is cut for those that start at once, "equal" or by a weight for each; "on_demand"
    gives each what is left, up to its own budget. What one does not use goes back.

    With a `plan` (a `Graph`, a `FanOut`, a `Plan` of your own) code takes the model's turns; they cost nothing. The
    agents and tools of the plan need not be given again. Denials are told to the plan, and without a `budget` only its
    steps, and their own budgets, bound it. It has neither a model nor guardrails for texts, handoffs or context, and
    nothing to wrap up.

    Raises:
        InvalidValue: The name is empty or too long, the model or a tool is none, two tools have one name, the budget
            limits a cost that nothing tells, or something is given beside a plan that a plan has no use for.
        ModelNotFound: There is no built-in model of that name.
    """

    __slots__ = (
        "budget",
        "description",
        "handoffs",
        "input_guardrails",
        "instructions",
        "max_output_tokens",
        "model",
        "name",
        "on_budget",
        "on_denied",
        "output_guardrails",
        "plan",
        "price",
        "providers",
        "shares",
        "stop_when",
        "stuck",
        "sub_agents",
        "summariser",
        "summariser_price",
        "tool_guardrails",
        "tools",
        "window",
    )

    def __init__(  # noqa: PLR0913 - the definition of an agent, each part by its name
        self,
        name: str,
        *,
        instructions: str = "",
        model: Model | str = "offline",
        tools: Sequence[Tool] = (),
        context: Sequence[ContextProvider] = (),
        budget: Budget | None = None,
        stop_when: Condition | None = None,
        on_denied: Literal["fail", "tell"] = "fail",
        on_budget: Literal["fail", "wrap_up", "suspend"] = "fail",
        max_output_tokens: int | Unlimited = UNLIMITED,
        window: ContextRules | None = None,
        tool_guardrails: Sequence[ToolGuardrail] = (),
        input_guardrails: Sequence[TextGuardrail] = (),
        output_guardrails: Sequence[TextGuardrail] = (),
        summariser: Model | str | None = None,
        handoffs: Sequence[Agent | str] = (),
        price: Price | None = None,
        summariser_price: Price | None = None,
        stuck: StuckRules | None = _USUAL_STUCK_RULES,
        description: str = "",
        sub_agents: Sequence[Agent | str] = (),
        shares: Shares = "equal",
        plan: Plan | None = None,
    ) -> None:
        self.name = _checked_name(name)
        self.instructions = clean_text(instructions)
        self.plan = plan
        if plan is not None:
            texts = (input_guardrails, output_guardrails, handoffs, summariser, window, context)
            _check_alone(name, plan, model, on_budget, texts)
            model, on_denied, budget = PlanModel(plan), "tell", budget or PLAN_BUDGET
            tools, sub_agents = _with(tools, plan.tools), _with(sub_agents, plan.agents)
            tool_guardrails = (*plan.guardrails, *tool_guardrails)
        self.model = _found(f"the model of agent {name!r}", model)
        self.summariser = None if summariser is None else _found(f"the summariser of agent {name!r}", summariser)
        self.tools = _named_tools(name, tools)
        self.providers = named_providers(name, context)
        _need(f"the budget of agent {name!r}", budget, Budget)
        _need(f"the window of agent {name!r}", window, ContextRules)
        _need(f"stop_when of agent {name!r}", stop_when, get_args(Condition))
        _need(f"stuck of agent {name!r}", stuck, StuckRules)
        _need_one_of(f"on_denied of agent {name!r}", on_denied, "fail", "tell")
        _need_one_of(f"on_budget of agent {name!r}", on_budget, "fail", "wrap_up", "suspend")
        _need(f"the price of agent {name!r}", price, Price)
        _need(f"the summariser_price of agent {name!r}", summariser_price, Price)
        self.price, self.summariser_price = price, summariser_price
        self.sub_agents = checked_sub_agents(name, sub_agents, tuple(self.tools))
        self.shares, self.description = checked_shares(name, shares, self.sub_agents), clean_text(description)
        self.budget = self.checked_budget(budget or (TEAM_BUDGET if self.sub_agents else Budget()))
        self.stop_when, self.stuck = stop_when, stuck
        self.on_denied, self.on_budget = on_denied, on_budget
        self.max_output_tokens = max_output_tokens
        self.window = window
        self.tool_guardrails = _functions(f"the tool guardrails of agent {name!r}", tool_guardrails)
        self.input_guardrails = _functions(f"the input guardrails of agent {name!r}", input_guardrails)
        self.output_guardrails = _functions(f"the output guardrails of agent {name!r}", output_guardrails)
        self.handoffs = _checked_handoffs(name, handoffs, (*self.tools, *map(name_of, self.sub_agents)))

    @property
    def tells_cost(self) -> bool:
        """Whether the cost of this agent's calls is known: it has a price, or its model clients say it."""
        if self.price is not None:
            return True
        models = [self.model]
        if self.summariser is not None and self.summariser_price is None:
            models.append(self.summariser)
        return all(getattr(model, "reports_cost", False) for model in models)

    def checked_budget(self, budget: Budget) -> Budget:
        """Return *budget*, if this agent can keep it.

        Raises:
            InvalidValue: It limits the cost, and nothing tells what a call of this agent costs: it would limit nothing.
        """
        if budget.max_cost is not UNLIMITED and not self.tells_cost:
            needed = "given together with Agent(price=Price(…)), or with model clients whose reports_cost is True"
            raise InvalidValue(f"max_cost for agent {self.name!r}", needed, budget.max_cost)
        return budget

    def spec(self, limits: Limits, known: Mapping[str, Agent] = _NOBODY) -> AgentSpec:
        """Return this agent as data, with the part of *limits* that the step keeps; *known* are others, by name."""
        window = self.window or ContextRules(
            messages=limits.context_messages,
            bytes=limits.context_bytes,
            result_bytes=limits.result_context_bytes,
            summarise=self._summarises,
            summarise_turns=limits.summarise_turns,
            summary_pause_turns=SUMMARY_PAUSE_TURNS,
            window_slack=WINDOW_SLACK,
            shrink=True,
        )
        if self.plan is not None:
            # All that a turn may have open, a thousand results, fits into the context; the plan reads them elsewhere.
            fitting = max(256, limits.context_bytes // limits.sub_agent_width)
            window = replace(window, result_bytes=min(limits.result_context_bytes, fitting), shrink=False)
        return AgentSpec(
            name=self.name,
            instructions=self.instructions,
            model=self.model.name,
            tools=tuple(
                tool.spec(limits.external_seconds if tool.external else limits.tool_call_seconds)
                for tool in self.tools.values()
            ),
            providers=tuple(self.providers),
            budget=self.budget,
            stop_when=self.stop_when,
            on_denied=self.on_denied,
            on_budget=self.on_budget,
            max_output_tokens=self.max_output_tokens,
            context=window,
            limits=self._step_limits(limits),
            guarded=self._guarded,
            handoffs=tuple(map(name_of, self.handoffs)),
            price=self.price,
            summary_price=self.summariser_price,
            stuck=self.stuck,
            sub_agents=sub_agent_specs(self, known),
            shares="on_demand" if self.shares == "on_demand" else "weights",
            consult="all_results" if self.plan is None else "each_result",
            plan="" if self.plan is None else plan_digest(self.name, self.plan),
        )

    @property
    def _guarded(self) -> tuple[Literal["input", "answer"], ...]:
        roles: dict[Literal["input", "answer"], Sequence[TextGuardrail]]
        roles = {"input": self.input_guardrails, "answer": self.output_guardrails}
        return tuple(role for role, functions in roles.items() if functions)

    @property
    def _summarises(self) -> bool:
        if self.summariser is not None:
            return True
        # One outside is a person, or another process: it is asked for turns only.
        return bool(getattr(self.model, "summarises", self.model.name != EXTERNAL))

    def _step_limits(self, limits: Limits) -> StepLimits:
        # Asked one after the other, all providers together may take as long as each of them may.
        seconds = limits.context_provider_seconds * max(1, len(self.providers))
        return replace(StepLimits.of(limits), context_seconds=seconds)


def _check_alone(name: str, plan: Any, model: Model | str, on_budget: str, texts: tuple[Any, ...]) -> None:
    """Refuse what has no meaning beside a plan: there is no text that a model would hear or say."""
    if not isinstance(plan, Plan):
        raise InvalidValue(f"the plan of agent {name!r}", "a Plan, such as a Graph", plan)
    if model != "offline":  # the default: nobody has given one
        raise InvalidValue(f"the model of agent {name!r}", "not given, for its plan takes the turns", model)
    if on_budget == "wrap_up":
        problem = "'fail' or 'suspend' beside its plan, which cannot do without its tools"
        raise InvalidValue(f"on_budget of agent {name!r}", problem, on_budget)
    given = next((other for other in texts if other), None)
    if given is not None:
        problem = "neither guardrails for texts nor handoffs, summariser, window or context beside its plan"
        raise InvalidValue(f"agent {name!r}", problem, given)


def _with(own: Sequence[T], of_plan: Sequence[T]) -> list[T]:
    """Return what an agent has and what its plan has, the same one once."""
    return [*own, *(each for each in of_plan if not any(each is mine or each == mine for mine in own))]


def _need(what: str, value: object, kinds: type | tuple[type, ...]) -> None:
    if value is not None and not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise InvalidValue(what, f"a {names}", value)


def _need_one_of(what: str, value: object, *known: str) -> None:
    if value not in known:
        raise InvalidValue(what, " or ".join(map(repr, known)), value)


def _found(what: str, model: Model | str) -> Model:
    found = find_model(model) if isinstance(model, str) else model
    if not (isinstance(found, Model) and isinstance(found.name, str)):
        raise InvalidValue(what, "a name, or an object with `name` and `reply`", model)
    return found


def _checked_name(name: str) -> str:
    if not name or len(name) > 200 or not name.isprintable():
        raise InvalidValue("an agent's name", "1 to 200 printable characters", name)
    return name


def _named_tools(name: str, tools: Sequence[Tool]) -> dict[str, Tool]:
    plain = next((tool for tool in tools if not isinstance(tool, Tool)), None)
    if plain is not None:
        raise InvalidValue(f"the tools of agent {name!r}", "made with the decorator @tool", plain)
    named = {tool.name: tool for tool in tools}
    if len(named) != len(tools):
        twice = next(t.name for t in tools if sum(o.name == t.name for o in tools) > 1)
        raise InvalidValue(f"the tools of agent {name!r}", "tools with different names", twice)
    return named


def _checked_handoffs(name: str, given: Sequence[Agent | str], taken: Sequence[str]) -> tuple[Agent | str, ...]:
    what = f"the handoffs of agent {name!r}"
    if isinstance(given, str | Agent) or not all(isinstance(each, str | Agent) for each in given):
        raise InvalidValue(what, "a list of agents, or of their names", given)
    names = [name_of(each) for each in given]
    for each in names:
        offered = f"{HANDOFF_PREFIX}{each}"
        if not each or not _OFFERED.fullmatch(offered):
            problem = f"agents whose names are of at most {64 - len(HANDOFF_PREFIX)} letters, digits, '_' and '-'"
            raise InvalidValue(what, f"{problem}, for models call them like tools", each)
        if names.count(each) > 1 or each == name or offered in taken:
            problem = "different agents, none the agent itself nor called as a tool or a sub-agent of its own is"
            raise InvalidValue(what, problem, each)
    return tuple(given)


def _functions(what: str, given: Sequence[T]) -> tuple[T, ...]:
    if isinstance(given, str) or callable(given) or not all(callable(each) for each in given):
        raise InvalidValue(what, "a list of functions", given)
    return tuple(given)


class RegisteredAgent:
    """An agent known to a runtime, with its spec encoded once."""

    __slots__ = ("agent", "digest", "encoded", "spec")

    def __init__(self, agent: Agent, limits: Limits, known: Mapping[str, Agent] = _NOBODY) -> None:
        for tool in agent.tools.values():
            if tool.isolation == "process":
                from geartrain.tools import check_findable  # noqa: PLC0415 - loads what only such tools need

                check_findable(tool)
        if agent.plan is not None and agent.plan.width > limits.sub_agent_width:
            most = f"at most {limits.sub_agent_width} steps (Limits.sub_agent_width)"
            raise InvalidValue(f"the plan of agent {agent.name!r}", most, agent.plan.width)
        self.agent = agent
        self.spec = agent.spec(limits, known)
        self.encoded = encode_spec(self.spec)
        # What could not be read back would spoil every run of this agent.
        try:
            readable = decode_spec(self.encoded) == self.spec
        except FormatUnknown as problem:
            raise InvalidValue(
                f"agent {agent.name!r}", "made of values of their declared types", str(problem)
            ) from None
        if not readable:
            raise InvalidValue(f"agent {agent.name!r}", "made of values that are stored as they are", agent.name)
        self.digest = spec_digest(self.spec)
