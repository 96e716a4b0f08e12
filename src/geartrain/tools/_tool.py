"""Declaring a tool: a function plus data about what running it does to the world."""

from __future__ import annotations

import copy
import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final, overload

import msgspec

from geartrain.machine import ToolSpec
from geartrain.tools._clean import cleaned
from geartrain.tools._errors import ArgumentsInvalid, ToolDefinitionError
from geartrain.tools._signature import Signature, read_signature

Isolation = Literal["task", "thread", "process"]

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
REASON_CHARACTERS_MAX: Final = 500
RETRIES_MAX: Final = 100


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Tool:
    """A function that a model may ask for, and what is known about it. Made by `tool`.

    Calling it calls the plain function. `spec()` is what is recorded with an agent; `decode` checks a model's
    arguments. `context_parameter` names the parameter that takes the `ToolContext`, if there is one.
    """

    name: str
    description: str
    kind: Literal["function", "ask_user", "publish", "wait_for"] = "function"
    function: Callable[..., Any] = field(repr=False)
    isolation: Isolation
    read_only: bool
    idempotent: bool
    external: bool
    timeout_seconds: float | None
    retries: int
    verify: Callable[..., Any] | None
    present: Callable[[Any], Any] | None
    context_parameter: str | None
    parameters: Mapping[str, Any] = field(repr=False)
    decoder: msgspec.json.Decoder[msgspec.Struct] = field(repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plain function, as its author's own tests do."""
        return self.function(*args, **kwargs)

    @property
    def repeatable(self) -> bool:
        """Whether running it twice does no more than running it once."""
        return self.read_only or self.idempotent

    def spec(self, default_timeout_seconds: float = 30.0) -> ToolSpec:
        """Return what the machine and the model know of it; the default is for a tool without a time-out of its own."""
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters=copy.deepcopy(dict(self.parameters)),
            kind=self.kind,
            read_only=self.read_only,
            idempotent=self.idempotent,
            verify=self.verify is not None,
            external=self.external,
            timeout_seconds=self.timeout_seconds or default_timeout_seconds,
        )

    def decode(self, arguments: str) -> dict[str, Any]:
        """Return the arguments of a call, checked against the signature, with defaults filled in.

        Raises:
            ArgumentsInvalid: They do not fit. The message is at most 500 characters, for the model to react to.
        """
        try:
            decoded = self.decoder.decode(arguments)
        except RecursionError:
            reason = "they are nested too deeply"
        except msgspec.ValidationError as error:
            names = ", ".join(self.parameters["properties"]) or "none"
            reason = f"{_short(error)}; the parameters are: {names}"
        except (msgspec.MsgspecError, ValueError) as error:
            reason = f"not valid JSON ({_short(error)}); send one JSON object"
        else:
            return {name: getattr(decoded, name) for name in decoded.__struct_fields__}
        frame = len(str(ArgumentsInvalid(self.name, "")))
        raise ArgumentsInvalid(self.name, cleaned(reason)[: REASON_CHARACTERS_MAX - frame])


def _short(error: Exception) -> str:
    # A message quotes names that the model made up, of any length.
    text = str(error)
    return text if len(text) <= 300 else f"{text[:200]} … {text[-80:]}"


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    function: None = None,
    /,
    *,
    name: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    external: bool = False,
    timeout_seconds: float | None = None,
    retries: int = 0,
    isolation: Isolation | None = None,
    verify: Callable[..., Any] | None = None,
    present: Callable[[Any], Any] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    external: bool = False,
    timeout_seconds: float | None = None,
    retries: int = 0,
    isolation: Isolation | None = None,
    verify: Callable[..., Any] | None = None,
    present: Callable[[Any], Any] | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function. The docstring's first paragraph and its `Args:` are what the model is told.

    Args:
        function: Plain or `async`; each parameter annotated with a type that JSON can carry. A parameter annotated
            `ToolContext` is given the call's context, and the model does not see it.
        name: Its name for the model, if not the function's own.
        read_only: It changes nothing, so it may run again, and beside other reads.
        idempotent: Running it again with the same idempotency key does no more than once.
        external: Somebody outside answers its calls, with `RunHandle.answer_call`; the function is never run, and only
            declares the name, the parameters and what they mean. Arguments are checked and the policy is asked as
            for any tool. A call of a write counts as started once it is open.
        timeout_seconds: How long a call may take, all tries together; None takes the runtime's `tool_call_seconds`, or
            `external_seconds` for an external tool.
        retries: How often a call that raised is tried again; for reads and idempotent writes only.
        isolation: "task" runs it on the event loop, "thread" on a thread: the default for `async` and for plain
            functions respectively. A plain function that never blocks may be a "task". "process" runs it in a worker
            process, with limits of memory and processor time, and ends it there, with all that it has started, when
            its time is over: for what may crash, hang or eat everything. Its module is imported by the worker, so the
            function must be found by its name in it.
        verify: Called with (arguments, context) when a started write's result was not seen; returns `Done`,
            `NotDone` or `Unknown`.
        present: Called with what the function returned; returns what is shown and stored in its place.

    Raises:
        ToolDefinitionError: Something about the definition is wrong; the message says what.
    """
    settings = _Settings(
        read_only=read_only,
        idempotent=idempotent,
        external=external,
        timeout_seconds=timeout_seconds,
        retries=retries,
        isolation=isolation,
        verify=verify,
        present=present,
    )

    def declare(function: Callable[..., Any]) -> Tool:
        return _declared(function, name, settings)

    return declare if function is None else declare(function)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    read_only: bool
    idempotent: bool
    external: bool
    timeout_seconds: float | None
    retries: int
    isolation: str | None
    verify: Callable[..., Any] | None
    present: Callable[[Any], Any] | None


def _declared(function: Callable[..., Any], name: str | None, settings: _Settings) -> Tool:
    name = getattr(function, "__name__", repr(function)) if name is None else name
    _check_name(name)
    _check_function(name, function)
    _check_settings(name, settings)
    signature: Signature = read_signature(name, function)
    return Tool(
        name=name,
        description=signature.description,
        function=function,
        isolation=_isolation(name, function, settings.isolation),
        read_only=settings.read_only,
        idempotent=settings.idempotent,
        external=settings.external,
        timeout_seconds=None if settings.timeout_seconds is None else float(settings.timeout_seconds),
        retries=settings.retries,
        verify=settings.verify,
        present=settings.present,
        context_parameter=signature.context_parameter,
        parameters=signature.parameters,
        decoder=msgspec.json.Decoder(signature.arguments),
    )


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        reason = "the name must be 1 to 64 letters, digits, '_' or '-', not beginning with a digit or '-'"
        raise ToolDefinitionError(str(name), reason)


def _check_function(name: str, function: object) -> None:
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ToolDefinitionError(name, f"must be a function or a bound method, got {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError(name, "is a generator; a tool returns once, collect the values and return them")


def _check_settings(name: str, settings: _Settings) -> None:
    for flag in ("read_only", "idempotent", "external"):
        if not isinstance(getattr(settings, flag), bool):
            raise ToolDefinitionError(name, f"{flag} must be True or False, got {getattr(settings, flag)!r}")
    seconds, retries = settings.timeout_seconds, settings.retries
    timed = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < math.inf
    if seconds is not None and not timed:
        raise ToolDefinitionError(name, f"timeout_seconds must be more than 0 and finite, got {seconds!r}")
    if not isinstance(retries, int) or isinstance(retries, bool) or not 0 <= retries <= RETRIES_MAX:
        raise ToolDefinitionError(name, f"retries must be from 0 to {RETRIES_MAX}, got {retries!r}")
    if retries and not (settings.read_only or settings.idempotent):
        raise ToolDefinitionError(name, "has retries, but a write is only tried again if it is idempotent")
    if settings.read_only and settings.verify is not None:
        raise ToolDefinitionError(name, "is read_only and has verify; only a write can be in doubt")
    for hook in ("verify", "present"):
        value = getattr(settings, hook)
        if value is not None and not callable(value):
            raise ToolDefinitionError(name, f"{hook} must be callable, got {value!r}")
    if inspect.iscoroutinefunction(settings.present):
        raise ToolDefinitionError(name, "present must be a plain function; it only shapes what was returned")


def _isolation(name: str, function: Callable[..., Any], isolation: str | None) -> Isolation:
    is_async = inspect.iscoroutinefunction(function)
    match isolation:
        case None:
            return "task" if is_async else "thread"
        case "task":
            return "task"
        case "thread" if not is_async:
            return "thread"
        case "thread":
            raise ToolDefinitionError(name, "is async, which runs as a task; isolation 'thread' is for plain functions")
        case "process":
            _check_findable(name, function)
            return "process"
    raise ToolDefinitionError(name, f"isolation must be 'task', 'thread' or 'process', got {isolation!r}")


def _check_findable(name: str, function: Callable[..., Any]) -> None:
    if inspect.ismethod(function):
        raise ToolDefinitionError(name, "is a bound method, which a worker process cannot find; use a plain function")
    if "<" in function.__qualname__:  # <locals>, <lambda>
        reason = f"{function.__qualname__} cannot be found by a worker process; define it at the top of its module"
        raise ToolDefinitionError(name, reason)
