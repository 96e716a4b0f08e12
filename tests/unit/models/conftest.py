"""A run without a runtime: the offline model asks, the real file tools answer, until there is an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from geartrain.machine import Message, ResultStatus, ToolCall, ToolSpec
from geartrain.models import ModelReply, ModelRequest, OfflineModel
from geartrain.tools import FileFailed, PathRefused, PatternRefused, Tool, ToolContext, file_tools

TURNS_MAX = 12
Answered = Callable[[str, Mapping[str, Any]], tuple[str, ResultStatus]]


def silent(_: str) -> None:
    pass


@dataclass
class Conversation:
    """The messages so far, and each reply. `answered` gives the result of a call in the tool's place."""

    root: Path
    tools: Sequence[Tool] = file_tools
    context: dict[str, Any] = field(default_factory=dict)
    offered: tuple[ToolSpec, ...] | None = None
    rooted: bool = True
    answered: Answered | None = None
    messages: list[Message] = field(default_factory=list)
    replies: list[ModelReply] = field(default_factory=list)
    turn: int = 0

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec() for tool in self.tools) if self.offered is None else self.offered

    @property
    def seen(self) -> str:
        return "\n".join(message.text for message in self.messages if message.role == "tool")

    @property
    def tools_called(self) -> list[str]:
        return [call.tool for reply in self.replies for call in reply.calls]

    def request(self, **changes: Any) -> ModelRequest:
        fields: dict[str, Any] = {
            "run_id": "r-1",
            "agent": "researcher",
            "turn": self.turn + 1,
            "attempt": 1,
            "messages": tuple(self.messages),
            "tools": self.specs,
            "context": {**({"root": str(self.root)} if self.rooted else {}), **self.context},
        }
        return ModelRequest(**{**fields, **changes})

    async def ask(self, text: str, *, steering: Mapping[int, str] | None = None) -> str:
        """Ask, go on until there is an answer, and return it; *steering* is said before the reply of its turn."""
        self.messages.append(Message(role="user", text=text))
        while True:
            if steering and self.turn + 1 in steering:
                self.messages.append(Message(role="user", text=steering[self.turn + 1], turn=self.turn))
            reply = await self.step()
            if not reply.calls:
                return reply.text

    async def step(self) -> ModelReply:
        """Take one turn: a reply, and the results of its calls."""
        assert self.turn < TURNS_MAX, "the model does not come to an end"
        reply = await OfflineModel().reply(self.request(), silent)
        self.turn += 1
        self.replies.append(reply)
        calls = tuple(
            ToolCall(id=f"t{self.turn}.c{position}", tool=call.tool, arguments=call.arguments)
            for position, call in enumerate(reply.calls, 1)
        )
        self.messages.append(Message(role="assistant", text=reply.text, calls=calls, turn=self.turn))
        self.messages += [self._result(call) for call in calls]
        return reply

    def _result(self, call: ToolCall) -> Message:
        text, status = self._run(call)
        if status is not ResultStatus.OK:
            text = f"[{status}] {text}"
        return Message(role="tool", text=text, call_id=call.id, tool=call.tool, status=status, turn=self.turn)

    def _run(self, call: ToolCall) -> tuple[str, ResultStatus]:
        tool = next(tool for tool in self.tools if tool.name == call.tool)
        arguments = tool.decode(call.arguments)
        if self.answered is not None:
            return self.answered(call.tool, arguments)
        if tool.context_parameter:
            arguments[tool.context_parameter] = ToolContext(context={"root": str(self.root)})
        try:
            return str(tool(**arguments)), ResultStatus.OK
        except (FileFailed, PathRefused, PatternRefused) as error:
            return str(error), ResultStatus.ERROR


@pytest.fixture
def conversation(tmp_path: Path) -> Conversation:
    return Conversation(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], None]:
    """Write a file below the root folder."""

    def write(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    return write
