"""The command `geartrain`: a thin face of the runtime."""

from geartrain.cli._app import main, typer_app

__all__ = ["main", "typer_app"]
