"""An answer in the shape that an output schema asks for, filled as well as plain text allows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# A schema may refer to itself; what lies deeper is left out.
_DEPTH_MAX: Final = 6
_ITEMS_MAX: Final = 4
_SOURCES: Final = re.compile(r"source|citation|reference|place|file|path|evidence", re.IGNORECASE)


def shaped(schema: Mapping[str, Any], report: str) -> str:
    """Return JSON that follows *schema*: texts are the report, lists of texts the places that it cites."""
    places = dict.fromkeys(re.findall(r"^- `([^`]+:\d+)`", report, re.MULTILINE))
    return json.dumps(_Filling(schema, report, tuple(places)).value(schema), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class _Filling:
    """What a schema is filled with; `root` holds the definitions that its parts refer to."""

    root: Mapping[str, Any]
    report: str
    places: tuple[str, ...]

    def value(self, part: Any, depth: int = 0) -> Any:
        schema = self._resolved(part)
        if depth > _DEPTH_MAX:
            return None
        if "const" in schema:
            return schema["const"]
        choices = schema.get("enum")
        if isinstance(choices, list) and choices:
            return choices[0]
        kind = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(kind, list):
            kind = kind[0] if kind else ""
        return self._of_kind(str(kind), schema, depth)

    def _of_kind(self, kind: str, schema: Mapping[str, Any], depth: int) -> Any:
        if kind == "object":
            properties = schema.get("properties")
            parts = properties.items() if isinstance(properties, dict) else ()
            return {name: self._named(name, self.value(part, depth + 1)) for name, part in parts}
        if kind == "array":
            return self._items(schema, depth)
        if kind in {"integer", "number"}:
            least = schema.get("minimum", 0)
            return max(len(self.places), least) if isinstance(least, int | float) else len(self.places)
        return {"boolean": bool(self.places), "null": None}.get(kind, self.report)

    def _named(self, name: str, value: Any) -> Any:
        return self.places[0] if value == self.report and self.places and _SOURCES.search(name) else value

    def _items(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        items = self._resolved(schema.get("items", {}))
        if items.get("type", "string") == "string" and "enum" not in items and "properties" not in items:
            return list(self.places)
        least = schema.get("minItems", 0)
        count = min(least, _ITEMS_MAX) if isinstance(least, int) else 0
        return [self.value(items, depth + 1) for _ in range(count)]

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        """Return what is behind references and choices (the first is taken); an empty schema if there is nothing."""
        for _ in range(_DEPTH_MAX):
            if not isinstance(schema, dict):
                return {}
            choices = schema.get("anyOf") or schema.get("oneOf")
            reference = schema.get("$ref")
            if isinstance(reference, str):
                definitions = self.root.get("$defs")
                schema = definitions.get(reference.rpartition("/")[2]) if isinstance(definitions, dict) else None
            elif isinstance(choices, list) and choices:
                schema = choices[0]
            else:
                return schema
        return {}
