"""The store in an SQLite file: durable, owned by one process, readable by any."""

from geartrain.persistence.sqlite._journal import SqliteJournal

__all__ = ["SqliteJournal"]
