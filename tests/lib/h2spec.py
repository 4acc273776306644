"""h2spec, and what its reports say."""

import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from harness import TOP
from secured import PEER, run

H2SPEC = Path(os.environ.get("BULKHEAD_H2SPEC") or TOP / "target/protocol/h2spec")
#: LIMIT: seconds that h2spec waits for a handshake or a frame. It ends without any result if one connection takes
#: longer; with 2 s that came about on a loaded machine. A server that answers as it should makes it wait for nothing.
SPEC_PATIENCE = 10


def conformance(port, folder, *sections):
    """h2spec, strict: how many tests it ran, and those that failed, each with what was expected."""
    report = folder / "h2spec.xml"
    # h2spec sends faulty frames on streams that it takes for open, while a server may have answered already, which RFC
    # 9113 8.1 allows: with a fast answer it depends on the scheduler who is first. So it asks for one that takes a
    # while.
    path = ("-P", "/probe/sleep?ms=100") if PEER == "bulkhead" else ()
    command = (H2SPEC, "-h", "localhost", "-p", port, "-t", "-k", "-S", "-o", SPEC_PATIENCE, "-j", report, *path, *sections)
    said = run(*command, seconds=300).stdout
    if not report.exists():
        raise AssertionError(f"h2spec made no report:\n{said}")
    return judged(report.read_text(), said)


def judged(report, said=""):
    """The number of test cases in a report, and what failed."""
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    failed = []
    for case in cases:
        for problem in [*case.findall("failure"), *case.findall("error")]:
            failed.append(f"{case.get('package')} {case.get('classname')}: {' '.join((problem.text or '').split())}")
    told = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", said)
    if told and int(told.group(4)) != len(failed):
        raise AssertionError(f"h2spec says {told.group()}, its report has {len(failed)}")
    return len(cases), failed
