"""An asyncio actor runtime for durable agent runs."""
