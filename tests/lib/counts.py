"""The last line of a stage of `make test`: what passed, failed and was skipped, and why."""

import os


def report(stage, passed, failed, reasons, flaky):
    """Prints the counts; adds them, with what was flaky, to the file that BULKHEAD_SUMMARY names, if it is said.

    `reasons` counts the skipped tests by their reason.
    """
    why = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
    counts = f"{passed} passed, {failed} failed, {reasons.total()} skipped{f' ({why})' if why else ''}"
    print(counts)
    if path := os.environ.get("BULKHEAD_SUMMARY"):
        with open(path, "a", encoding="utf-8") as file:
            print(f"{stage}: {counts}", *[f"  flaky: {name}" for name in flaky], sep="\n", file=file)
