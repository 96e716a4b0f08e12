"""Write the snapshot of the stored forms; what changed in it is for a reviewer to look at."""

from __future__ import annotations

import json

from test_machine_wire import SNAPSHOT, stored_forms

if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(stored_forms(), indent=1) + "\n", encoding="utf-8")
