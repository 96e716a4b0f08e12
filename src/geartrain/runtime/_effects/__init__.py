"""Commands being carried out: models, tools, providers, summaries and handoffs, from their start to their event."""

__all__: list[str] = []  # a drawer of this room: its modules are taken out one by one
