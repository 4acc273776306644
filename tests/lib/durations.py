"""How long classes of tests took when they were measured last: by that, which of them is begun first."""

import json
import os
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "docs/internals/test-times.json"
#: LIMIT: seconds. Classes that take less than that are not noted: whenever they begin, no run ends later for it.
LONG = 10


def long_ones(classes):
    """Those of these classes that take long, the longest first."""
    return dict(sorted(((name, took) for name, took in classes.items() if took >= LONG), key=lambda one: -one[1]))


def known():
    """{class: seconds} of those that take long."""
    return json.loads(FILE.read_text(encoding="utf-8"))["classes"] if FILE.exists() else {}


def note(tests):
    """Adds the seconds of each class to the file that BULKHEAD_TIMES names, if it is said."""
    if not (path := os.environ.get("BULKHEAD_TIMES")):
        return
    classes = {}
    for test in tests:
        name = test["name"].rpartition(".")[0]
        classes[name] = classes.get(name, 0.0) + test["seconds"]
    with open(path, "a", encoding="utf-8") as file:
        for name, seconds in classes.items():
            print(json.dumps({"class": name, "seconds": round(seconds, 1)}), file=file)
