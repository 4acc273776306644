"""What is run once more: tests that failed while other stages of `make test` went on, until none goes on."""

import argparse
import json
import os
from pathlib import Path


def put_off(failed, options):
    """Notes in the file that BULKHEAD_AGAIN names, if it is said, what has failed and how it was run."""
    settings = {name: value for name, value in os.environ.items() if name.startswith("BULKHEAD_")}
    with open(os.environ["BULKHEAD_AGAIN"], "a", encoding="utf-8") as file:
        for test in failed:
            print(json.dumps({"test": test, "options": vars(options), "settings": settings}), file=file)


def noted(path):
    """Each test that was put off, with the options it was run with; its settings are this process's from then on."""
    lines = Path(path).read_text(encoding="utf-8").splitlines() if path and Path(path).exists() else []
    for record in map(json.loads, lines):
        os.environ.update(record["settings"])
        yield record["test"], argparse.Namespace(**record["options"])


def both(first, again):
    """What was printed of a failure, and of the second one."""
    return "\n".join([first.get("text", ""), *(["once more, alone:", again.get("text", "")] if again else [])])
