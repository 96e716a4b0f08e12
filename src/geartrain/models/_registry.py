"""Models that need no configuration, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from geartrain.errors import UsageError
from geartrain.models._external import ExternalModel
from geartrain.models._offline import OfflineModel
from geartrain.models._protocol import Model

BUILT_IN: Final[Mapping[str, Callable[[], Model]]] = MappingProxyType(
    {"external": ExternalModel, "offline": OfflineModel}
)


@dataclass(eq=False)
class ModelNotFound(UsageError):
    """No model of that name is known here."""

    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        known = ", ".join(map(repr, self.known)) or "none"
        return f"model {self.name!r}: not known (known: {known}); give the agent a Model, or one of these names"


def find_model(name: str) -> Model:
    """Return the built-in model called *name*.

    Raises:
        ModelNotFound: There is none of that name.
    """
    try:
        return BUILT_IN[name]()
    except KeyError:
        raise ModelNotFound(name, tuple(sorted(BUILT_IN))) from None
