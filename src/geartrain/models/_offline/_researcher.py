"""How the offline researcher decides: it reads files through the tools it is offered, and cites them.

Rule 1: the reply is a pure function of the request. What was done is read from the messages, never remembered, so a
run that is resumed in another process goes on as if nothing had been.
Rule 2: a question takes at most six turns: four of research, one to save a report if that is wanted, the answer.
Rule 3: nothing is cited that no tool has shown.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from geartrain.machine import RequestedCall, ResultStatus, Usage
from geartrain.models._offline._echo import echoes_of
from geartrain.models._offline._observed import Exchange, Made, Seen, arguments_of, newest_exchange, observe
from geartrain.models._offline._other_tools import calls_of_others, said_by_others
from geartrain.models._offline._own_reports import forget_reports
from geartrain.models._offline._parts import as_heading, taken_apart
from geartrain.models._offline._question import Question, analyse
from geartrain.models._offline._quoting import joined, rendered
from geartrain.models._offline._report import section_for
from geartrain.models._offline._research import STAGES, next_calls
from geartrain.models._offline._shaped import shaped
from geartrain.models._offline._summary import summary_of
from geartrain.models._offline._toolbox import Role, Toolbox, argument
from geartrain.models._protocol import ModelReply, ModelRequest

# A late question still gets its searches and its reads.
_ROUNDS_FOR_A_LATE_QUESTION: Final = 2
_CHARS_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What was asked at once: the whole, and the parts that are researched and answered one by one.

    `round` counts the replies with calls that had been given before.
    """

    round: int
    whole: Question
    parts: tuple[Question, ...]


def decide(request: ModelRequest) -> ModelReply:
    """Return the reply to *request*."""
    if request.purpose == "compact":
        return _reply(request, text=summary_of(request.messages))
    exchange = newest_exchange(request.messages)
    box = Toolbox.of(request.tools)
    if not exchange.asked:
        return _reply(request, text="There is no question to answer.")
    seen = observe(exchange, box)
    inquiries = _inquiries(exchange)
    forget_reports(seen, [inquiry.whole for inquiry in inquiries], request.context.get("write"))
    calls = _research(request, exchange, inquiries, seen, box)
    if calls:
        return _reply(request, text=_commentary(calls, box), calls=calls)
    saved = _saved(exchange, box)
    report = _report(request, exchange, inquiries, seen, box)
    target = request.context.get("write")
    if saved is None and isinstance(target, str) and target:
        call = box.call(Role.WRITE, path=target, content=report)
        if call is not None:
            return _reply(request, text=f"Saving the report to `{target}`.", calls=(call,))
    return _answer(request, _with_saved(report, saved))


def _answer(request: ModelRequest, text: str) -> ModelReply:
    """Return *text* as the answer, in the shape and within the length that were asked for."""
    room = math.inf if request.max_output_tokens is None else request.max_output_tokens * _CHARS_PER_TOKEN
    if request.output_schema is not None:
        return _reply(request, text=shaped(request.output_schema, text))
    if len(text) <= room:
        return _reply(request, text=text)
    kept = text[: int(room)]
    return msgspec.structs.replace(_reply(request, text=kept.rpartition("\n")[0] or kept), finish_reason="length")


def _inquiries(exchange: Exchange) -> list[Inquiry]:
    earlier = analyse(exchange.earlier) if exchange.earlier else None
    inquiries: list[Inquiry] = []
    for asked in exchange.asked:
        texts = taken_apart(asked.text)
        echoes = echoes_of([asked.text, *texts])
        whole = replace(analyse(asked.text).following(earlier), echoes=echoes)
        parts: list[Question] = []
        for text in texts:
            part = replace(analyse(text).following(earlier), echoes=echoes)
            parts.append(part)
            # What a later part points back to is the last thing, not the project as a whole.
            named = part.practice is None and any(not term.soft for term in part.terms)
            earlier = part if named or earlier is None else earlier
        inquiries.append(Inquiry(asked.round, whole, tuple(parts)))
    return inquiries


def _research(
    request: ModelRequest, exchange: Exchange, inquiries: list[Inquiry], seen: Seen, box: Toolbox
) -> tuple[RequestedCall, ...]:
    rounds = exchange.rounds
    late = max(asked.round for asked in exchange.asked)
    # Messages may have been summarised away, turns not: they too bound the research.
    first_turn = min((m.turn for m in request.messages if m.role == "user"), default=0)
    rounds = max(rounds, request.turn - 1 - first_turn) if exchange.summary else rounds
    if rounds >= max(STAGES, late + _ROUNDS_FOR_A_LATE_QUESTION) or _saved(exchange, box) is not None:
        return ()
    made = frozenset((one.call.tool, one.call.arguments) for one in exchange.made)
    others = (
        calls_of_others([inquiry.whole for inquiry in inquiries], box, made)
        if rounds == 0 or late == exchange.rounds
        else ()
    )
    if not box.reads_files:
        return others
    # Tools for files refuse all without a root folder, and failures are counted: one try shows whether they work.
    trying = "root" not in request.context and Role.LIST in box.known
    if trying and not exchange.made:
        first = box.call(Role.LIST, path=".")
        return (*others, *([first] if first else []))
    if trying and not any(made.ok for made in exchange.made):
        return others
    stages = [
        (part, max(0, min(rounds - trying - inquiry.round, STAGES))) for inquiry in inquiries for part in inquiry.parts
    ]
    return (*others, *next_calls(stages, seen, box, made))[:8]


def _commentary(calls: tuple[RequestedCall, ...], box: Toolbox) -> str:
    """Return what is being done, in a sentence for whoever watches."""
    roles = [box.role_of(call.tool) for call in calls]
    paths = [argument(arguments_of(call.arguments), "path") for call in calls if box.role_of(call.tool) is Role.READ]
    steps = []
    if Role.LIST in roles:
        steps.append("looking at what is there")
    if Role.SEARCH in roles:
        steps.append("searching for the words of the question")
    if paths:
        steps.append("reading " + joined([f"`{path}`" for path in dict.fromkeys(paths)]))
    steps += [f"asking `{call.tool}`" for call, role in zip(calls, roles, strict=True) if role is None]
    text = joined(steps)
    return f"{text[:1].upper()}{text[1:]}."


def _saved(exchange: Exchange, box: Toolbox) -> Made | None:
    """Return the writing call that came after the last question, if there was one."""
    last = exchange.asked[-1].round if exchange.asked else 0
    return next(
        (made for made in reversed(exchange.made) if made.round >= last and box.role_of(made.call.tool) is Role.WRITE),
        None,
    )


def _report(request: ModelRequest, exchange: Exchange, inquiries: list[Inquiry], seen: Seen, box: Toolbox) -> str:
    saved = _saved(exchange, box)
    if saved is not None:
        content = argument(saved.arguments, "content")
        if isinstance(content, str):
            return content
    sections = [
        said_by_others(inquiry.whole, exchange.made, box) or _file_section(request, inquiry, seen, box)
        for inquiry in inquiries
    ]
    if len(sections) == 1:
        text = sections[0]
    else:
        text = "\n\n".join(f"## {i.whole.text.strip()}\n\n{s}" for i, s in zip(inquiries, sections, strict=True))
    return text + _failures(seen)


def _file_section(request: ModelRequest, inquiry: Inquiry, seen: Seen, box: Toolbox) -> str:
    if seen.lines or seen.files or box.reads_files:
        titles = [as_heading(part.text) for part in inquiry.parts]
        return rendered([section_for(part, seen) for part in inquiry.parts], titles)
    if not request.tools:
        return (
            "No tools were offered, so no file could be read; from the conversation alone this cannot be answered: "
            f"“{inquiry.whole.text.strip()[:200]}”"
        )
    return "None of the tools offered fits this question."


def _failures(seen: Seen) -> str:
    if not seen.failed:
        return ""
    lines = []
    for made in seen.failed[:4]:
        status = made.result.status if made.result else ResultStatus.NOT_STARTED
        why = " ".join(made.result.text.split())[:160] if made.result else "no result came"
        lines.append(f"`{made.call.tool}` {made.call.arguments[:80]} ({status}): {why}")
    return "\n\nNot everything could be looked at:\n\n" + "\n".join(f"- {line}" for line in lines)


def _with_saved(report: str, saved: Made | None) -> str:
    if saved is None:
        return report
    path = argument(saved.arguments, "path")
    if saved.ok:
        return f"{report}\n\nSaved to `{path}`."
    status = saved.result.status if saved.result else ResultStatus.NOT_STARTED
    why = " ".join(saved.result.text.split())[:200] if saved.result else "no result came"
    return f"{report}\n\nNot saved to `{path}`: {status} ({why})."


def _reply(request: ModelRequest, *, text: str = "", calls: tuple[RequestedCall, ...] = ()) -> ModelReply:
    said = sum(message.size() for message in request.messages)
    offered = sum(len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters)) for tool in request.tools)
    spoken = len(text) + sum(len(call.tool) + len(call.arguments) for call in calls)
    usage = Usage(
        input_tokens=-(-(said + offered) // _CHARS_PER_TOKEN),
        output_tokens=max(1, -(-spoken // _CHARS_PER_TOKEN)),
        estimated=True,
    )
    return ModelReply(text=text, calls=calls, usage=usage, finish_reason="tool_calls" if calls else "stop")
