"""Any value as JSON text, in pieces that each take about a millisecond.

`msgspec` holds the interpreter for as long as one call of it takes; on a value of 500 MB that would stop the event
loop for seconds even from another thread. So a heavy value is taken apart here and encoded a batch at a time.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import PurePath
from typing import Any, Final

import msgspec

LIGHT_NODES: Final = 5_000
TEXT_SLICE: Final = 128 * 1024
_BATCH: Final = 500
_DEPTH: Final = 32
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SCALARS: Final = frozenset({int, float, bool, type(None)})
_SEQUENCES: Final = (list, tuple, set, frozenset)
_TEXTS: Final = (str, bytes, bytearray)  # a subclass may say any length; that costs time, nothing else


class Unstorable(Exception):
    """A value has no JSON form; the text says why."""


def type_name(value: object) -> str:
    """Return the name of the value's type; never raises, whatever the type does."""
    # By way of `type` itself: a stranger's metaclass, or subclass of `str`, may answer with code of its own.
    return str.__str__(type.__dict__["__qualname__"].__get__(type(value)))[:100]


def is_light(value: object) -> bool:
    """Whether *value* is converted within about two milliseconds: at most 5,000 nodes or 1.28 MB of text.

    Never raises: what cannot even be looked at is light, and refused when it is converted.
    """
    try:
        return _weighs_at_most(value, LIGHT_NODES)
    except BaseException:  # noqa: BLE001 - a stranger's properties
        return True


def _weighs_at_most(value: object, budget: int) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        budget -= 1
        if isinstance(item, _TEXTS):
            budget -= len(item) >> 8
        elif isinstance(item, memoryview):
            budget -= item.nbytes >> 8
        else:
            children = _children(item)
            if len(children) > budget:
                return False
            nested = [child for child in children if type(child) not in _SCALARS]
            budget -= len(children) - len(nested)
            stack.extend(nested)
        if budget < 0:
            return False
    return True


def _children(value: Any) -> Any:
    # Exact types only: a subclass may answer `iter` and `len` with a stranger's code.
    if type(value) is dict:
        return value.values()
    if type(value) in _SEQUENCES:
        return value
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name, None) for name in value.__struct_fields__]
    if _is_dataclass(value):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return ()


def _is_dataclass(value: object) -> bool:
    return hasattr(type(value), "__dataclass_fields__")


def pieces(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the JSON text of *value*. Not-a-number and the infinities become strings, lone surrogates escapes.

    Raises:
        Unstorable: There is no JSON form, found perhaps only after some pieces.
    """
    if depth > _DEPTH:
        raise Unstorable("it is nested too deeply, or contains itself")
    if is_light(value):
        yield json_text(value)
    elif type(value) is dict:
        yield from _object(value.items(), depth)
    elif type(value) in _SEQUENCES:
        yield from _array(value, depth)
    elif type(value) is str:
        yield '"'
        for start in range(0, len(value), TEXT_SLICE):
            yield json_text(value[start : start + TEXT_SLICE])[1:-1]
        yield '"'
    elif isinstance(value, bytes | bytearray):
        yield '"'
        for start in range(0, len(value), TEXT_SLICE * 3):
            yield base64.b64encode(value[start : start + TEXT_SLICE * 3]).decode("ascii")
        yield '"'
    elif isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        yield from _object([(shown, getattr(value, name)) for shown, name in names], depth)
    elif _is_dataclass(value):
        yield from _object([(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)], depth)
    else:
        yield json_text(value)


def _array(values: Iterable[Any], depth: int) -> Iterator[str]:
    comma = "["
    items = iter(values)
    while batch := list(islice(items, _BATCH)):
        if is_light(batch):
            yield comma + json_text(batch)[1:-1]
        else:
            for item in batch:
                yield comma
                yield from pieces(item, depth + 1)
                comma = ","
        comma = ","
    yield "]"


def _object(pairs: Iterable[tuple[Any, Any]], depth: int) -> Iterator[str]:
    comma = "{"
    items = iter(pairs)
    while batch := dict(islice(items, _BATCH)):
        if is_light(batch):
            yield comma + json_text(batch)[1:-1]
        else:
            for key, value in batch.items():
                yield comma + json_text({key: 0})[1:-2]
                yield from pieces(value, depth + 1)
                comma = ","
        comma = ","
    yield "}"


def json_text(value: Any) -> str:
    """Return the JSON text of *value* in one go.

    Raises:
        Unstorable: There is no JSON form.
    """
    try:
        data = msgspec.json.encode(value, enc_hook=_converted)
        # msgspec writes not-a-number and the infinities as null, like a value that is not there.
        if b"null" in data:
            data = msgspec.json.encode(_repaired(msgspec.to_builtins(value, str_keys=True, enc_hook=_converted)))
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_converted)
        data = msgspec.json.encode(_repaired(plain))
    except RecursionError:
        raise Unstorable("it is nested too deeply, or contains itself") from None
    except (TypeError, ValueError) as error:
        raise Unstorable(str(error)[:200]) from None
    return data.decode()


def _converted(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, deque):
        return list(value)
    raise Unstorable(f"it holds a value of type {type_name(value)!r}")


def _repaired(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity"}.get(repr(value), "-Infinity")
    if isinstance(value, str):
        return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", value)
    if isinstance(value, list | tuple):
        return [_repaired(item) for item in value]
    if isinstance(value, dict):
        return {_repaired(key): _repaired(item) for key, item in value.items()}
    return value
