"""A policy made of ordered rules: which tools, under which condition, and the verdict. The first that fits decides."""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from geartrain.errors import InvalidValue
from geartrain.runtime._policy import Allow, Ask, Change, Decision, Deny, Policy, PolicyCall, RunView, default_policy

Predicate = Callable[[PolicyCall, RunView], bool]

NAME_CHARACTERS: Final = 100
_VERDICTS: Final = (Allow, Deny, Ask)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: which tools it is about, its verdict, and perhaps when it holds.

    `tools` is a pattern of tool names (`*` any characters, `?` one, `[…]` one of these; letters count as written), or
    several of which one must fit. `when` is called with the call and the run, and must return True or False.
    `name` is kept with each decision; a rule without one is named after its place: `rule 3`.

    Raises:
        InvalidValue: A part is not what it must be.
    """

    tools: str | Sequence[str]
    verdict: Allow | Deny | Ask
    when: Predicate | None = None
    name: str = ""

    def __post_init__(self) -> None:
        given = (self.tools,) if isinstance(self.tools, str) else self.tools
        patterns = tuple(given) if isinstance(given, Sequence) else ()
        if not patterns or not all(isinstance(pattern, str) and pattern for pattern in patterns):
            raise InvalidValue("the tools of a rule", "a pattern of tool names, or several", self.tools)
        if not isinstance(self.verdict, _VERDICTS):
            raise InvalidValue("the verdict of a rule", "an Allow, Deny or Ask: Allow(), not Allow", self.verdict)
        if self.when is not None and (not callable(self.when) or inspect.iscoroutinefunction(self.when)):
            raise InvalidValue("`when` of a rule", "a plain function (call, run) -> bool, or None", self.when)
        if not isinstance(self.name, str) or len(self.name) > NAME_CHARACTERS or not self.name.isprintable():
            raise InvalidValue("the name of a rule", f"at most {NAME_CHARACTERS} printable characters", self.name)
        object.__setattr__(self, "tools", patterns)

    def fits(self, call: PolicyCall, run: RunView) -> bool:
        """Return whether the rule is about this call.

        Raises:
            InvalidValue: Its condition gave neither True nor False.
        """
        if not any(fnmatchcase(call.tool, pattern) for pattern in self.tools):
            return False
        if self.when is None:
            return True
        holds: Any = self.when(call, run)
        if not isinstance(holds, bool):
            if inspect.iscoroutine(holds):
                holds.close()  # or Python would warn that nobody awaited it
            raise InvalidValue(f"what `when` of rule {self.name!r} returns", "True or False", type(holds).__name__)
        return holds


class Rules:
    """A policy of ordered rules: `Runtime.open(policy=Rules([...]))`. The first rule that fits decides.

    The decision names the rule: `policy:NAME` in its `by`. Where none fits, *default* decides: a verdict or another
    policy; the usual one allows read-only tools and asks about the rest. A condition that raises, or gives neither True
    nor False, asks a person: a later rule must not allow what an earlier one might have denied.

        Rules(
            [
                Rule("delete_*", Deny("nothing is deleted"), name="no deletes"),
                Rule("write_file", Allow(), when=argument_below("path", "drafts"), name="drafts"),
                Rule("write_*", Ask("outside the drafts")),
            ]
        )

    Raises:
        InvalidValue: One is no rule, or two have one name.
    """

    __slots__ = ("default", "rules")

    def __init__(self, rules: Sequence[Rule], default: Allow | Deny | Ask | Policy = default_policy) -> None:
        wrong = next((rule for rule in rules if not isinstance(rule, Rule)), None)
        if wrong is not None:
            raise InvalidValue("rules", "a list of Rule", wrong)
        if not callable(default) and not isinstance(default, _VERDICTS):
            raise InvalidValue("the default of rules", "an Allow, Deny or Ask, or a policy", default)
        named = [rule if rule.name else replace(rule, name=f"rule {n}") for n, rule in enumerate(rules, start=1)]
        names = [rule.name for rule in named]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidValue("the names of rules", "different", twice)
        self.rules = tuple(named)
        self.default = default

    def __call__(self, call: PolicyCall, run: RunView) -> Decision | Awaitable[Decision]:
        """Return the verdict of the first rule that fits, or of the default."""
        rule = next((rule for rule in self.rules if rule.fits(call, run)), None)
        if rule is not None:
            return replace(rule.verdict, rule=rule.name)
        if isinstance(self.default, _VERDICTS):
            return replace(self.default, rule="default")
        answer = self.default(call, run)
        named = isinstance(answer, (*_VERDICTS, Change)) and not answer.rule
        return replace(answer, rule="default") if named else answer  # type: ignore[type-var]


def argument_equals(name: str, value: Any) -> Predicate:
    """Return a condition that holds if the argument *name* is given and equals *value*."""
    return lambda call, _run: name in call.arguments and bool(call.arguments[name] == value)


def argument_matches(name: str, pattern: str) -> Predicate:
    """Return a condition that holds if the argument *name* is text and all of it fits the regular expression.

    Raises:
        InvalidValue: *pattern* is no regular expression.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InvalidValue("the pattern of an argument", f"a regular expression ({error})", pattern) from None

    def matches(call: PolicyCall, _run: RunView) -> bool:
        value = call.arguments.get(name)
        return isinstance(value, str) and compiled.fullmatch(value) is not None

    return matches


def argument_below(name: str, folder: str) -> Predicate:
    """Return a condition that holds if the argument *name* is the path of *folder* itself or of something below it.

    Paths are compared as they are written, once `.` and `..` are taken out: a relative path is below a relative folder
    only. Links are not followed, so a tool that follows them must confine itself.

    Raises:
        InvalidValue: *folder* is no path, or leads out of where it starts.
    """
    if not isinstance(folder, str) or not folder:
        raise InvalidValue("a folder", "a path", folder)
    wanted = _parts(folder)
    if wanted is None:
        raise InvalidValue("a folder", "a path that does not lead out of where it starts", folder)

    def below(call: PolicyCall, _run: RunView) -> bool:
        value = call.arguments.get(name)
        parts = _parts(value) if isinstance(value, str) and value and "\0" not in value else None
        return parts is not None and parts[: len(wanted)] == wanted

    return below


def _parts(path: str) -> list[str] | None:
    """Return the parts of a path, after `/` for an absolute one and `.` for another; None for one that leads out."""
    plain = posixpath.normpath(path)
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    return None if parts[:1] == [".."] else ["/" if plain.startswith("/") else ".", *parts]
