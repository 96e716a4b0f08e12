"""Every error class: it survives pickling, has one family, and says something."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import pickle
import types
import typing
from collections.abc import Callable, Iterator

from _source import modules

from geartrain.errors import GeartrainError, InternalError, ResourceError, UsageError

FAMILIES = (UsageError, ResourceError, InternalError)
SAMPLES = {str: "sample", int: 3, float: 1.5, bool: True, bytes: b"sample", object: "sample", typing.Any: "sample"}


def sample(kind: typing.Any) -> typing.Any:
    """Return a value of the annotated type *kind*."""
    if kind in SAMPLES:
        return SAMPLES[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType, typing.Literal}:
        return arguments[0] if origin is typing.Literal else sample(arguments[0])
    if origin is tuple:
        return tuple(sample(part) for part in arguments if part is not ...)
    if origin in {dict, typing.Mapping} or getattr(origin, "__name__", "") == "Mapping":
        return {sample(arguments[0]): sample(arguments[1])}
    if origin is not None and arguments:
        return [sample(arguments[0])]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return kind("sample")
    raise TypeError(f"no sample of {kind!r}: say in SAMPLES what one looks like")


def built(kind: type[GeartrainError]) -> GeartrainError:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return kind(**{field.name: sample(hints[field.name]) for field in fields if field.init})


def error_classes() -> list[type[GeartrainError]]:
    for module in modules():
        if not module.name.endswith("__main__"):
            importlib.import_module(f"geartrain.{module.name}".rstrip("."))

    def below(kind: type[GeartrainError]) -> Iterator[type[GeartrainError]]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    ours = {kind for kind in below(GeartrainError) if kind.__module__.startswith("geartrain.")}
    return sorted(ours - set(FAMILIES), key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")


def faults(rule: Callable[[GeartrainError], bool]) -> list[str]:
    """Return the classes whose sample does not keep *rule*."""
    return [kind.__qualname__ for kind in error_classes() if not rule(built(kind))]


def test_there_are_errors_to_look_at() -> None:
    assert {"MailboxFull", "MailboxClosed", "ActorStopped"} <= {kind.__name__ for kind in error_classes()}


def test_every_error_survives_pickling() -> None:
    def survives(error: GeartrainError) -> bool:
        again = pickle.loads(pickle.dumps(error))
        return type(again) is type(error) and repr(vars(again)) == repr(vars(error)) and str(again) == str(error)

    assert faults(survives) == []


def test_every_error_belongs_to_one_family() -> None:
    assert faults(lambda error: sum(isinstance(error, family) for family in FAMILIES) == 1) == []


def test_every_message_is_made_of_fields() -> None:
    # A class that only passes its caller's text on knows nothing that code could look at.
    assert faults(lambda error: dataclasses.is_dataclass(error) and type(error).__str__ is not Exception.__str__) == []


def test_every_message_begins_in_lower_case_and_has_no_full_stop() -> None:
    assert faults(lambda error: not str(error)[:1].isupper() and not str(error).endswith((".", "!"))) == []


def test_every_message_shows_a_value() -> None:
    def shows_a_field(error: GeartrainError) -> bool:
        strings = [value for value in vars(error).values() if isinstance(value, str)]
        return not strings or any(value in str(error) for value in strings)

    assert faults(shows_a_field) == []
