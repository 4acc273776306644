#!/usr/bin/env python3
"""A filter that refuses requests by path, user agent or a header that is missing.

usage: refuse.py [--path PREFIX]... [--agent PART]... [--require HEADER]...

--path     answers 403 where the path, decoded and without needless slashes and dots, begins with PREFIX
--agent    answers 403 where the User-Agent contains PART, in whatever case
--require  answers 400 where HEADER is missing

Runs in: a filter process, in a jail of its own. Sees: the heads of clients' requests. Never: changes one.
"""

import argparse
import posixpath
import sys
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).parent.parent))  # where it lies if it is not installed

from bulkhead_filter import Request, requests


def plain_path(request: Request) -> str:
    """The path as a server would look for it, so that `/%70rivate` and `//x/../private` are what they are."""
    target = request.path
    if target.startswith("http://"):
        target = "/" + target[len("http://"):].partition("/")[2]
    decoded = unquote(target)
    plain = posixpath.normpath("/" + decoded.lstrip("/"))
    return plain + "/" if decoded.endswith("/") and plain != "/" else plain


def refusal(request: Request, options: argparse.Namespace) -> int:
    """The status to refuse a request with, or 0."""
    if options.path and plain_path(request).startswith(tuple(options.path)):
        return 403
    agent = (request.field("user-agent") or "").lower()
    if any(part.lower() in agent for part in options.agent):
        return 403
    return 400 if any(request.field(name) is None for name in options.require) else 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Refuses requests by path, user agent or a missing header.")
    parser.add_argument("--path", action="append", default=[], metavar="PREFIX")
    parser.add_argument("--agent", action="append", default=[], metavar="PART")
    parser.add_argument("--require", action="append", default=[], metavar="HEADER")
    options = parser.parse_args()
    for request in requests():
        status = refusal(request, options)
        if status:
            request.drop(status)
        else:
            request.pass_on()


if __name__ == "__main__":
    main()
