"""Which geartrain this is: said by the command line, and in everything that travels."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
