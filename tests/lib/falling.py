"""Counts that may only fall: what there was of something is in a file, and a change may make it less and never more."""

import json


def known(path):
    """What there was, by what it is."""
    return json.loads(path.read_text())


def judged(found, before, command):
    """What there is more of than before; and less of, which this command notes."""
    for name in sorted(found.keys() | before.keys()):
        now, then = found.get(name, 0), before.get(name, 0)
        if now > then:
            yield f"{name}: {now}; before: {then}"
        elif now < then:
            yield f"{name}: {now}, which is less than the {then} of before; run {command} --write"


def write(path, found, before):
    """Notes what has become less."""
    less = {name: min(count, before[name]) for name, count in found.items() if name in before}
    path.write_text(json.dumps(less, indent=1) + "\n")
