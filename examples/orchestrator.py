r"""A desk led by a model: it calls two other agents like tools, and a person approves what one of them is about to do.

`geartrain watch r- --tree --store desk.db` in another terminal shows the tree while it works. Kill any of the commands
at any moment, and go on with `geartrain work --app orchestrator --store desk.db`: no line is ever written twice.

$ geartrain run --app orchestrator --store desk.db "Order 17 came broken." --quiet; echo "exit code $?"
…pay_back waits for approval…
exit code 3
$ geartrain show r- --tree --store desk.db
desk …EXECUTE_TOOL, waits for 1 sub-agent…
  t1.c1 store …FINISHED…
  t1.c2 bank …SUSPENDED, waits for approval: t1.c1 pay_back…
…geartrain approve r-…
$ geartrain approve r- --app orchestrator --store desk.db --quiet
A new lamp is set aside for you.
Your 30 EUR are on their way.
$ cat done.txt
…order 17: lamp set aside
order 17: 30 EUR paid back
"""

from pathlib import Path
from typing import Any

from geartrain import Agent, Allow, Ask, Rule, Rules, ScriptedModel, ToolContext, tool
from geartrain.models import Delay, ModelRequest, call
from geartrain.tools import Done, NotDone


def book(context: ToolContext) -> Path:
    """Return the file in which each effect is a line, so that they can be counted."""
    return Path(context.context["root"], "done.txt")


def write(context: ToolContext, line: str) -> None:
    with book(context).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def written(context: ToolContext, line: str) -> bool:
    return book(context).exists() and line in book(context).read_text("utf-8").splitlines()


@tool(idempotent=True)
def set_aside(context: ToolContext, order: int, article: str) -> str:
    """Set an article aside for an order."""
    line = f"{context.idempotency_key} order {order}: {article} set aside"
    if not written(context, line):
        write(context, line)
    return f"A new {article} is set aside for you."


def paid(arguments: dict[str, Any], context: ToolContext) -> Done | NotDone:
    """Say whether a payment was made whose outcome nobody saw."""
    line = f"order {arguments['order']}: {arguments['amount']} EUR paid back"
    return Done(f"Your {arguments['amount']} EUR are on their way.") if written(context, line) else NotDone()


@tool(verify=paid)
def pay_back(context: ToolContext, order: int, amount: int) -> str:
    """Pay an order back."""
    write(context, f"order {order}: {amount} EUR paid back")
    return f"Your {amount} EUR are on their way."


def results(request: ModelRequest) -> str:
    return "\n".join(message.text for message in request.messages if message.role == "tool")


# Scripts in place of models: a real one is given the same tools, with their descriptions.
aside = ScriptedModel([Delay(0.3, [call("set_aside", order=17, article="lamp")]), results])
back = ScriptedModel([Delay(0.3, [call("pay_back", order=17, amount=30)]), results])
both = ScriptedModel([[call("store", input="A lamp for 17."), call("bank", input="30 EUR for 17.")], results])

store = Agent("store", description="Sets articles aside.", model=aside, tools=[set_aside])
bank = Agent("bank", description="Pays orders back.", model=back, tools=[pay_back])
agents = [Agent("desk", model=both, sub_agents=[store, bank])]
policy = Rules([Rule("pay_back", Ask("money leaves the house")), Rule("*", Allow())])
