"""What a function's signature says about its arguments: the type that decodes them, and the JSON Schema.

Everything that cannot be told to a model, or decoded from JSON, is refused here with its own reason; nothing is
guessed. Pure: the function is looked at and not called.
"""

from __future__ import annotations

import copy
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from geartrain.tools._context import ToolContext
from geartrain.tools._errors import ToolDefinitionError

_ENTRY: Final = re.compile(r"(?P<name>\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's arguments: how they are decoded, described, and which parameter takes the `ToolContext`."""

    arguments: type[msgspec.Struct]
    parameters: Mapping[str, Any]
    description: str
    context_parameter: str | None


def read_signature(name: str, function: Callable[..., Any]) -> Signature:
    """Return what the signature and docstring of *function* say.

    Raises:
        ToolDefinitionError: Some parameter cannot be decoded from JSON, or is not one that has a name.
    """
    hints = _hints(name, function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    defaults: dict[str, Any] = {}
    context_parameter: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        annotation = _annotation(name, parameter, hints)
        if annotation is ToolContext:
            if context_parameter is not None:
                reason = f"has two ToolContext parameters, {context_parameter!r} and {parameter.name!r}"
                raise ToolDefinitionError(name, reason)
            context_parameter = parameter.name
        elif parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, annotation))
        else:
            defaults[parameter.name] = _json_default(name, parameter, annotation)
            fields.append((parameter.name, annotation, _default(parameter.default)))
    arguments = _struct(name, fields)
    documented = _documented(inspect.getdoc(function) or "")
    schema = _schema(name, arguments, fields)
    for parameter_name, description in schema["properties"].items():
        if parameter_name in documented:
            description.setdefault("description", documented[parameter_name])
        if parameter_name in defaults:
            description["default"] = defaults[parameter_name]
    return Signature(arguments, schema, documented.pop("", ""), context_parameter)


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # an annotation is an expression, which may raise whatever it likes
        reason = f"an annotation cannot be resolved ({type(error).__name__}: {error}); import it where the module runs"
        raise ToolDefinitionError(name, reason) from error


def _annotation(name: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    shown = repr(parameter.name)
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.VAR_KEYWORD:
            reason = f"takes {str(parameter).partition(':')[0]}; a model needs parameters with names, list them"
        case inspect.Parameter.POSITIONAL_ONLY:
            reason = f"parameter {shown} is positional only; arguments come by name, drop the '/'"
        case _ if parameter.name.startswith("__"):
            reason = f"parameter {shown} begins with two underscores"
        case _ if parameter.name in hints:
            return hints[parameter.name]
        case _:
            advice = "; of a method, decorate the bound one" if parameter.name in {"self", "cls"} else ""
            reason = f"parameter {shown} has no annotation, which is what a model is told{advice}"
    raise ToolDefinitionError(name, reason)


def _json_default(name: str, parameter: inspect.Parameter, annotation: Any) -> Any:
    """Return a default as the model is told of it; it must be what a call could have given."""
    try:
        data = msgspec.json.encode(parameter.default)
        msgspec.json.decode(data, type=annotation)
    except Exception as error:
        reason = f"parameter {parameter.name!r} has a default that does not fit its annotation: {error}"
        raise ToolDefinitionError(name, reason) from error
    return msgspec.json.decode(data)


def _default(default: Any) -> Any:
    if isinstance(default, str | int | float | None):
        return default
    # A list or an object as default would be shared by all calls.
    return msgspec.field(default_factory=lambda: copy.deepcopy(default))


def _struct(name: str, fields: list[Any]) -> type[msgspec.Struct]:
    try:
        arguments = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
        msgspec.json.Decoder(arguments)
    except Exception as error:
        raise ToolDefinitionError(name, _type_reason(fields, error)) from error
    return arguments


def _type_reason(fields: list[Any], error: Exception) -> str:
    for field in fields:
        try:
            msgspec.json.schema(field[1])
        except Exception as inner:  # noqa: BLE001 - a stranger's type; which of them is wrong is all we ask
            text = str(inner).rsplit("\n", 1)[-1]
            return f"parameter {field[0]!r} has a type that JSON cannot carry: {text}"
    return f"its parameters cannot be decoded from JSON: {error}"


def _schema(name: str, arguments: type, fields: list[Any]) -> dict[str, Any]:
    try:
        (top,), parts = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except Exception as error:
        raise ToolDefinitionError(name, _type_reason(fields, error)) from error
    schema: dict[str, Any] = parts.pop(top["$ref"].removeprefix("#/$defs/"))
    schema.pop("title", None)
    return schema | {"$defs": parts} if parts else schema


def _documented(docstring: str) -> dict[str, str]:
    """Return the first paragraph, under the name "", and the entries of `Args:`, each as one line."""
    paragraph, _, rest = docstring.partition("\n\n")
    texts = {"": " ".join(paragraph.split())}
    inside, indent, name = False, 0, ""
    for line in rest.splitlines():
        depth = len(line) - len(line.lstrip())
        entry = _ENTRY.fullmatch(line.strip())
        if depth == 0 and line.strip():
            inside, indent, name = line.strip() in {"Args:", "Arguments:"}, 0, ""
        elif inside and entry and depth <= (indent or depth):
            indent, name = depth, entry["name"]
            texts[name] = entry["text"]
        elif inside and name and line.strip():
            texts[name] += " " + line.strip()
    return texts
