"""What is run once more: tests that failed while other stages of `make test` went on, when none goes on.

A test that fails and then passes is flaky. It makes the run red, unless the machine stood still meanwhile or
tests/flaky.json names the test, with a reason and since when. That list is for what is being mended. With
BULKHEAD_FLAKY=named a flaky test is named, and makes no run red.
"""

import argparse
import json
import os
from pathlib import Path

#: Tests that are known to be flaky: `test` is the name of one or of a class, as `tests/run` prints it.
KNOWN = Path(__file__).resolve().parent.parent / "flaky.json"
#: LIMIT: seconds. No test waits for less than this; a shorter standstill of the machine excuses no failure.
STILL_MAX = 1.0
REMEDY = ("It passed when it was run again: have it wait for a condition in place of a time; "
          "until then, name it in tests/flaky.json.")


def known():
    """The entries of the list."""
    return json.loads(KNOWN.read_text(encoding="utf-8"))


def excuse(test):
    """Why a test that failed and then passed does not make the run red; nothing, if it does."""
    name = test["name"].removeprefix("rootless: ")
    for one in known():
        if name == one["test"] or name.startswith((f"{one['test']}.", f"{one['test']}[")):
            return f"in tests/flaky.json since {one['since']}: {one['why']}"
    if os.environ.get("BULKHEAD_FLAKY") == "named":
        return "not in tests/flaky.json"
    stood = test.get("stood", 0.0)
    return f"the machine stood still for {stood:.1f} s" if stood > STILL_MAX else None


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
