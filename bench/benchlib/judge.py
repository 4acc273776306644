"""From rounds to figures, ratios and verdicts.

In each round every server is measured once, one soon after the other. A ratio is therefore taken within each round, and the
figure is the median of these. Its interval is the narrowest between two of the sorted rounds that has the true median in it
with a probability of 90% or more, whatever the distribution: with fewer than eight rounds that is from the least to the most.
"""

import math
import statistics

#: Fewer rounds are not judged.
ROUNDS_MIN = 3
COVERAGE = 0.90
MET, NOT_MET, UNKNOWN, UNJUDGED = "met", "not met", "not told apart", "not judged"


def interval(values):
    """The interval of the median of these values."""
    ordered, count = sorted(values), len(values)
    drop = 0
    while drop + 1 < count / 2:
        outside = 2 * sum(math.comb(count, below) for below in range(drop + 2)) / 2 ** count
        if 1 - outside < COVERAGE:
            break
        drop += 1
    return ordered[drop], ordered[count - 1 - drop]


def values(rounds, bar):
    """What a bar is about, round by round: our figure, or its ratio to a peer's."""
    ours = [one[bar.figure] for one in rounds["ours"]]
    if bar.beside is None:
        return ours
    return [mine / max(other[bar.figure], 1e-9) for mine, other in zip(ours, rounds[bar.beside])]


def verdict(low, high, limit, more=False):
    """Whether a limit is reached. A limit inside of the interval is neither reached nor missed."""
    if more:
        low, high, limit = -high, -low, -limit
    if high <= limit:
        return MET
    return NOT_MET if low > limit else UNKNOWN


def judged(rounds, bar):
    """What a bar comes to: the figure, its interval, and a verdict on bar and stretch."""
    found = values(rounds, bar)
    low, high = interval(found)
    say = lambda limit: None if limit is None else verdict(low, high, limit, bar.more) if len(found) >= ROUNDS_MIN else UNJUDGED
    return {"value": statistics.median(found), "low": low, "high": high, "bar": say(bar.limit), "stretch": say(bar.stretch)}


def median(rounds, figure):
    """The median of a figure, or None where it is not measured."""
    found = [one[figure] for one in rounds if one.get(figure) is not None]
    return statistics.median(found) if found else None


def programs(rounds):
    """The median of each process's part of the CPU time per request, by its name."""
    names = sorted({name for one in rounds for name in one.get("cpu_by_program_us", {})})
    return {name: statistics.median(one.get("cpu_by_program_us", {}).get(name, 0.0) for one in rounds) for name in names}
