"""All cases, in the order of the report: a module for each subject, each with its list CASES."""

import fnmatch

from . import connections, guard, http2, proxy, service, sites, static, tls

CASES = [case for module in (static, connections, tls, http2, proxy, service, guard, sites) for case in module.CASES]


def chosen(patterns):
    """The cases whose name matches one of the patterns, with commas; an error names what there is."""
    words = [word for word in patterns.split(",") if word]
    found = [case for case in CASES if any(fnmatch.fnmatch(case.name, word) for word in words)]
    for word in words:
        if not any(fnmatch.fnmatch(case.name, word) for case in CASES):
            raise LookupError(f"no case {word}; there are: {' '.join(case.name for case in CASES)}")
    return found
