"""What an export leaves out, by rule. Pure: JSON data in, JSON data out.

Rule 1: what is left out becomes `[redacted 1]`, `[redacted 2]`, …: each text its own number, the same text the same
number. So nothing is said of it but where it comes again, and two different calls stay different.
Rule 2: JSON within a text (the arguments of a call, a tool's result) is looked into, at any depth.
Rule 3: the words by which a run finds its own parts (ids, names of tools and agents, digests) are no secrets: text
rules pass over them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from geartrain.errors import InvalidValue
from geartrain.ids import digest
from geartrain.machine import guard_arguments

SECRETS: Final = "secrets"
TEXT: Final = "text:"

_SECRET_FIELDS: Final = (
    "*password*",
    "*passwd*",
    "*passphrase*",
    "*secret*",
    "*token",
    "*api_key*",
    "*api-key*",
    "*apikey*",
    "*access_key*",
    "*private_key*",
    "*credential*",
    "authorization",
    "cookie",
    "set-cookie",
)
# Where only a part of what matches is the secret, that is the group of this name.
_GROUP: Final = "secret"
_ASSIGNED: Final = (
    r"(?i)\b[\w-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key)[\"']?\s*[:=]\s*"
    r"(?P<secret>\"[^\"]*\"|'[^']*'|[^\s,;&]+)"
)
_SECRET_TEXTS: Final = tuple(
    map(
        re.compile,
        (
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            r"(?i)\b(?:bearer|basic)\s+(?P<secret>[\w.~+/-]{8,}=*)",
            _ASSIGNED,
            r"://[^/\s:@]*:(?P<secret>[^@\s/]+)@",
            r"\bsk-[\w-]{16,}",
            r"\bgh[pousr]_\w{20,}",
            r"\bgithub_pat_\w{20,}",
            r"\bA(?:KIA|SIA)[0-9A-Z]{16}\b",
            r"\bAIza[\w-]{30,}",
            r"\bxox[abeprs]-[\w-]{10,}",
            r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
        ),
    )
)
# Fields that hold a user's own data: no name below them is a word of ours.
_FREE: Final = frozenset({"context", "labels", "payload"})
# Below these are names of fields, and no fields.
_SCHEMAS: Final = frozenset({"parameters", "output_schema"})
_OWN_WORDS: Final = frozenset(
    {
        *("type", "id", "source", "spec", "request", "agent", "tool", "call_id", "provider_id", "run_id", "root"),
        *("digest", "arguments_digest", "artifact", "media_type", "continues", "role", "status", "state", "kind"),
        *("code", "anomaly_code", "verdict", "decision", "remember", "not_done", "model", "finish_reason"),
        *("on_denied", "on_budget", "consult", "max_output_tokens", "aside", "aside_id", "plan"),
    }
)
# Fields of events that hold what was said to a run, or what it answers.
_JUDGED: Final = frozenset({"input", "text"})
_Path = tuple[str, ...]


class Redaction:
    """The rules of one export, and what they have left out so far.

    A rule is one of these:
        `secrets`: fields that are named like secrets, and texts that look like keys, tokens or passwords;
        `text:REGEX`: what a regular expression finds in any text (only its group `secret`, if it has one);
        `NAME`: every field of that name, at any depth; `*` stands for any letters;
        `TYPE.FIELD…`: one field of one type of event, or of `Spec`, such as `ToolFinished.text`, `Spec.instructions`
        or `ModelReplied.calls.*.arguments.path`.

    With *lengths* every text that is left out keeps its length, as some runs shorten their context by size.

    Raises:
        InvalidValue: A rule is none of these.
    """

    def __init__(self, rules: Sequence[str], *, lengths: bool = False) -> None:
        self.lengths = lengths
        self.digests: dict[str, str] = {}  # of arguments before, to those after
        self._numbers: dict[str, int] = {}
        self._texts: list[re.Pattern[str]] = []
        self._fields: list[str] = []
        self._secret_fields: tuple[str, ...] = ()
        for rule in rules:
            self._take(rule)
        # A text rule may be the secret itself, so it is not told.
        self.told = tuple(TEXT.rstrip(":") if rule.startswith(TEXT) else rule for rule in rules)

    def _take(self, rule: str) -> None:
        if rule == SECRETS:
            self._texts += _SECRET_TEXTS
            self._secret_fields = _SECRET_FIELDS
        elif rule.startswith(TEXT):
            try:
                pattern = re.compile(rule.removeprefix(TEXT))
            except re.error as problem:
                raise InvalidValue("a redaction rule", f"text: and a regular expression ({problem})", rule) from None
            if pattern.fullmatch(""):
                raise InvalidValue("a redaction rule", "a regular expression that finds something", rule)
            self._texts.append(pattern)
        elif rule and not set(rule) & set(" :/\\\"'"):
            self._fields.append(rule)
        else:
            raise InvalidValue("a redaction rule", "secrets, text:REGEX, a field's name or TYPE.FIELD", rule)

    def event(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body of an event without what the rules leave out."""
        return self._dict(body, (kind,), free=False)

    def spec(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a spec without what the rules leave out."""
        return self._dict(body, ("Spec",), free=False)

    def labels(self, labels: dict[str, str]) -> dict[str, str]:
        """Return the labels of a run, as those in its first event are."""
        whole: dict[str, str] = self._value(labels, ("RunStarted", "labels"), free=False)
        return whole

    def text(self, text: str) -> str:
        """Return a text that stands by itself (a reason, an artifact)."""
        return self._text(text, ("Artifact", "text"), free=False)

    def names(self, *path: str) -> bool:
        """Say whether a rule names this field as a whole."""
        return self._named(path, free=False)

    def _named(self, path: _Path, *, free: bool) -> bool:
        whole, name = ".".join(path), path[-1]
        if path[0] == "Spec" and not _SCHEMAS.isdisjoint(path[:-1]):
            return False
        for pattern in self._fields:
            if fnmatchcase(whole if "." in pattern else name, pattern):
                return True
        return free and any(fnmatchcase(name.lower(), pattern) for pattern in self._secret_fields)

    def _dict(self, value: dict[str, Any], path: _Path, *, free: bool) -> dict[str, Any]:
        return {
            self._replaced(key) if free else key: self._value(each, (*path, key), free=free)
            for key, each in value.items()
        }

    def _inside(self, value: dict[str, Any] | list[Any], path: _Path) -> dict[str, Any] | list[Any]:
        """Return JSON data of the user's own without what the rules leave out."""
        if isinstance(value, dict):
            return self._dict(value, path, free=True)
        return [self._value(each, (*path, "*"), free=True) for each in value]

    def _value(self, value: Any, path: _Path, *, free: bool) -> Any:
        if path[-1] != "*" and self._named(path, free=free):
            return self._left_out(value, path, free=free)
        free = free or path[-1] in _FREE
        if isinstance(value, dict):
            return self._dict(value, path, free=free)
        if isinstance(value, list):
            return [self._value(each, (*path, "*"), free=free) for each in value]
        if isinstance(value, str):
            return self._text(value, path, free=free)
        if free and value is not None and not isinstance(value, bool):
            shown = repr(value)
            return value if self._replaced(shown) == shown else self._mark(shown)
        return value

    def _left_out(self, value: Any, path: _Path, *, free: bool) -> Any:
        if isinstance(value, dict):
            return self._left_out_dict(value)
        if isinstance(value, list):
            return [self._mark(json.dumps(value))] if free else value
        if isinstance(value, str):
            if not free and not value:
                return value  # nothing is there, and some fields mean something by it
            return (
                self._arguments(value, self._left_out_arguments(value))
                if _are_arguments(path, free)
                else self._said(value, self._mark(value), path)
            )
        return self._mark(json.dumps(value)) if free else value

    def _left_out_dict(self, value: dict[str, Any]) -> dict[str, Any]:
        return {"redacted": self._mark(json.dumps(value, sort_keys=True))} if value else value

    def _left_out_arguments(self, text: str) -> str:
        # A call whose arguments are no object is refused; so one is left in the place of one, and none of none.
        return json.dumps({"redacted": self._mark(text)}) if isinstance(_parsed(text), dict) else self._mark(text)

    def _arguments(self, before: str, after: str) -> str:
        self.digests[_digest(before)] = _digest(after)
        return after

    def _text(self, text: str, path: _Path, *, free: bool) -> str:
        if not free and _is_own_word(path):
            return text
        after = self._nested(text, path)
        if after is None:
            after = self._replaced(text)
        return self._arguments(text, after) if _are_arguments(path, free) else self._said(text, after, path)

    def _said(self, before: str, after: str, path: _Path) -> str:
        # What guardrails judge is approved by the digest of the text as arguments.
        if path[-1] in _JUDGED and after != before:
            self._arguments(guard_arguments(before), guard_arguments(after))
        return after

    def _nested(self, text: str, path: _Path) -> str | None:
        """Return JSON text without what the rules leave out; None if it is no JSON object or list."""
        value = _parsed(text)
        if not isinstance(value, dict | list):
            return None
        try:
            walked = self._inside(value, path)
            if json.dumps(walked) == json.dumps(value):
                return text
            return json.dumps(walked, ensure_ascii=False)
        except RecursionError:
            return self._left_out_arguments(text)

    def _replaced(self, text: str) -> str:
        for pattern in self._texts:
            text = pattern.sub(self._without_secret, text)
        return text

    def _without_secret(self, found: re.Match[str]) -> str:
        whole = found.group()
        if _GROUP not in found.re.groupindex or found.group(_GROUP) is None:
            return self._mark(whole) if whole else whole
        start, end = (place - found.start() for place in found.span(_GROUP))
        return whole[:start] + self._mark(whole[start:end]) + whole[end:]

    def _mark(self, text: str) -> str:
        if text.startswith("[redacted "):  # by the rule before
            return text
        number = self._numbers.setdefault(text, len(self._numbers) + 1)
        mark = f"[redacted {number}]"
        if not self.lengths:
            return mark
        if len(text) < len(mark):
            return "*" * len(text)
        return f"{mark[:-1]}{'.' * (len(text) - len(mark))}]"


def _is_own_word(path: _Path) -> bool:
    named = (path[0], path[-1]) == ("Spec", "name")  # of an agent or a tool; a tool's traces have names of their own
    return named or path[-1] in _OWN_WORDS or path[-2:] == ("guarded", "*")


def _are_arguments(path: _Path, free: bool) -> bool:
    return path[-1] == "arguments" and not free


def _digest(text: str) -> str:
    return digest(text.encode("utf-8", "surrogatepass"))


def _parsed(text: str) -> Any:
    """Return the JSON that a text holds; the text itself if it holds none, or nothing that could be looked into."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
