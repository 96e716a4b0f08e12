"""What a run is charged: the tokens of every model call, and what they cost.

Rule 1: nothing is free because its figure is missing: what nobody counted, or nobody saw the end of, is estimated.
Rule 2: where the agent has a price, that alone makes the cost, also of estimates: one source, one unit. What the model
says of its cost then does not count. Without a price the model's own figure counts, and an estimated call costs what
the run's calls have cost so far for as many tokens.
Rule 3: a call is charged by the agent that made it: the run's spec as of that step. A sub-agent has charged its own.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec.structs import replace

from geartrain.machine._draft import Draft
from geartrain.machine._events import SubAgentEnded
from geartrain.machine._outside import bounded
from geartrain.machine._spec import Price
from geartrain.machine._values import Usage, Used

# Characters of English text in a token, as the providers' own rule of thumb has it.
CHARACTERS_PER_TOKEN: Final = 4
# More tokens than any model call uses: a figure above it is no figure, and sums stay far below what JSON holds.
TOKENS_PLAUSIBLE: Final = 1_000_000_000


def estimate_tokens(size: int) -> int:
    """Return about how many tokens *size* characters are: one for four, at least one."""
    return max(1, (size + CHARACTERS_PER_TOKEN - 1) // CHARACTERS_PER_TOKEN)


def charge(draft: Draft, usage: Usage | None, reply_size: int, *, summary: bool = False) -> None:
    """Add what a model call used; a missing figure is estimated, and no figure ever lowers the count."""
    if usage is None:
        usage = Usage(
            input_tokens=estimate_tokens(draft.run.messages_size),
            output_tokens=estimate_tokens(reply_size),
            estimated=True,
        )
        usage = _at_the_going_rate(draft, usage)
    _add(draft, _priced(draft, _plausible(usage), summary=summary))


def charge_lost(draft: Draft, attempts: int = 1, *, summary: bool = False) -> None:
    """Charge *attempts* of a model call whose replies nobody will see: the input of each, estimated.

    A plan's turn costs nothing.
    """
    if attempts > 0 and not draft.spec.plan:
        tokens = estimate_tokens(draft.run.messages_size) * attempts
        usage = _at_the_going_rate(draft, Usage(input_tokens=tokens, estimated=True))
        _add(draft, _priced(draft, _plausible(usage), summary=summary, calls=attempts))


def charge_sub_agent(draft: Draft, event: SubAgentEnded) -> None:
    """Add what a sub-agent's run has used, as it was charged there, to what is used below this one.

    By the rules of before there were shares, to what the run itself has used.
    """
    usage = _plausible(event.usage)
    if not bounded(draft.spec):
        _add(draft, usage)
        draft.set(tool_calls=draft.run.tool_calls + max(0, event.tool_calls))
        return
    used = Used(
        turns=max(0, event.turns),
        seconds=max(0.0, event.seconds),
        tool_failures=max(0, event.tool_failures),
        tool_calls=max(0, event.tool_calls),
        usage=usage,
    )
    draft.set(below=used if draft.run.below is None else draft.run.below.plus(used))


def _add(draft: Draft, usage: Usage) -> None:
    draft.set(token_count=draft.run.token_count.plus(usage))


def _plausible(usage: Usage) -> Usage:
    """Return *usage* with every figure in it that is none put right."""
    if (
        0 <= usage.input_tokens <= TOKENS_PLAUSIBLE
        and 0 <= usage.output_tokens <= TOKENS_PLAUSIBLE
        and 0 <= usage.cost < math.inf
    ):
        return usage
    return Usage(
        input_tokens=min(max(0, usage.input_tokens), TOKENS_PLAUSIBLE),
        output_tokens=min(max(0, usage.output_tokens), TOKENS_PLAUSIBLE),
        cost=usage.cost if 0 <= usage.cost < math.inf else 0.0,
        estimated=True,
    )


def _priced(draft: Draft, usage: Usage, *, summary: bool, calls: int = 1) -> Usage:
    price = _price(draft, summary=summary)
    return usage if price is None else replace(usage, cost=price.of(usage, calls))


def _price(draft: Draft, *, summary: bool) -> Price | None:
    spec = draft.spec
    return spec.summary_price if summary and spec.summary_price is not None else spec.price


def _at_the_going_rate(draft: Draft, usage: Usage) -> Usage:
    """Return an estimate with what it costs by what the run's tokens have cost so far."""
    so_far = draft.run.token_count
    if draft.spec.rules_version < 2 or not so_far.cost or not so_far.total_tokens:
        return usage
    return replace(usage, cost=so_far.cost / so_far.total_tokens * usage.total_tokens)
