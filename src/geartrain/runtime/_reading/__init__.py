"""Reading runs from a journal: as they stand, as they went, step by step, and all together."""

__all__: list[str] = []  # a drawer of this room: its modules are taken out one by one
