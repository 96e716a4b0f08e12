"""Write the pages of `docs/` that are made from the code; `make docs` runs this."""

from __future__ import annotations

from pathlib import Path

from geartrain.machine import page

PAGES = {"state-machine.md": page}


def main() -> None:
    """Write every generated page beside this file."""
    for name, make in PAGES.items():
        (Path(__file__).parent / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
