"""The store in an SQLite file: durable, owned by one process, readable by any."""

from geartrain.persistence.sqlite._journal import SqliteJournal
from geartrain.persistence.sqlite._lock import StoreOwner, store_owner

__all__ = ["SqliteJournal", "StoreOwner", "store_owner"]
