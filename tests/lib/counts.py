"""The last line of a stage of `make test`: what passed, failed and was skipped, and why."""

import os

#: LIMIT: of what a test that failed has printed, the last lines stand in the summary.
LINES = 60


def report(stage, passed, failed, reasons, flaky, broken):
    """Prints the counts; adds them, with what was flaky or broken, to the file that BULKHEAD_SUMMARY names, if it is said.

    `reasons` counts the skipped tests by their reason; `broken` has for each test that failed what was printed of it.
    """
    why = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
    counts = f"{passed} passed, {failed} failed, {reasons.total()} skipped{f' ({why})' if why else ''}"
    print(counts)
    if path := os.environ.get("BULKHEAD_SUMMARY"):
        with open(path, "a", encoding="utf-8") as file:
            print(f"{stage}: {counts}", *[f"  flaky: {name}" for name in flaky], sep="\n", file=file)
            for name, text in broken.items():
                print(f"  FAILED: {name}", *[f"    {line}" for line in text.splitlines()[-LINES:]], sep="\n", file=file)
