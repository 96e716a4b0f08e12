"""The offline model: a researcher that needs no key and no network."""

from geartrain.models._offline._model import OfflineModel

__all__ = ["OfflineModel"]
