"""From the figures to what people read: CONDITIONING.md with the goals beside the figures, JSON, and the plots."""

import json
import re
import statistics

from benchlib import plot
from load import BALLAST
from peers import LABELS, NAMES
from starvation import Starvation

COLOURS = {"ours": "#1f4e9c", "guarded-apache": "#c2412d", "apache": "#e39a8c", "guarded-nginx": "#2f8551",
           "nginx": "#94c7a6"}
OWN = ("ours", "guarded-apache", "guarded-nginx")
WHERE = {"few": "bulk from 4 networks", "many": "bulk from everywhere"}
INTRODUCTION = """\
# Connection conditioning, measured

`bench/conditioning/run` wrote this file, the plots and `conditioning/results.json`: the experiments of the paper from
which conditioning comes (sections 4.3.4 and 4.4), on loopback, inside of a network namespace of its own.
docs/guide/conditioning.md explains the policies.

"""
NOTES = """\
## How it was measured

- **Interleaved.** In an experiment's run every server is measured in turn at each point. Servers have core
  {server_core}, clients and attackers core {client_core}. Figures are medians of the rounds, of which results.json has
  all; the bands in the plots are their range.
- **Servers are what is short** where throughput is measured: something else (`ballast.c`) has {ballast}% of their core,
  so that clients always have time to ask. Without it both cores are busy, and what attackers take of the clients' core
  (a sixth of it, for 5,000 slow readers) looks like harm to the server.
- **Each figure against the same server's own**: just before each attack the server is measured without it. "Left" is
  the throughput under the attack divided by that, both for the time for which the host has given the server's core to
  this machine. A measurement for which others had more than 6% of the processors is repeated, and the quietest kept.
- **Regular clients**: 16 connections in a closed loop, each from a /8 of its own as far as there are any, a new
  connection for each request of 100 bytes (`client.c`). A request that is not answered counts with its age.
- **Infrequent clients**: eight, each from a /8 of its own, with 50 such requests a second. They never wait for the
  attackers on their core, which have a lower priority there. Time in which the host had taken one of the two cores
  away for more than a millisecond does not count (`away.h` finds it: on each core a thread that goes before all others
  is late): without that, the p99 of one and the same server without attackers was between 1 and 155 ms.
- **Attackers** (`tests/lib/attack.py`) hold what they have; what the server closes they open again, 500 a second
  (bulk clients at once). They come from 256 addresses in four /16s of one /8, "from everywhere" from eleven /8s.
- **Apache** has the prefork model with its default limits, 150 processes, and the distribution's mod_reqtimeout;
  **nginx** a process for each core with 768 connections each. **Guarded** is the same program with the same
  configuration, started by `bulkhead guard`. **Bulkhead** has its defaults. Access logs are on everywhere.
- Send buffers are at most 128 KiB (as towards slow lines; loopback's own would swallow whole responses).
"""


def median(rounds, key):
    return statistics.median(one[key] for one in rounds)


def points(series, key, factor=1.0):
    """{x: (median, least, greatest)} for a plot."""
    return {x: tuple(factor * value for value in (median(rounds, key), min(one[key] for one in rounds),
                                                  max(one[key] for one in rounds))) for x, rounds in series.items()}


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def at_least(rounds, limit):
    """Whether a goal is met by the median of these rounds; nothing if only some of them meet it."""
    if statistics.median(rounds) >= limit:
        return True
    return None if max(rounds) >= limit else False


VERDICTS = {True: "met", None: "**not told apart**", False: "**not met**"}


class Section:
    """What the report says about one experiment: text, a plot, and the goals [(what, figure, goal, met)]."""

    def __init__(self, title):
        self.title, self.text, self.svg, self.goals = title, "", "", []

    def goal(self, what, figure, goal, met):
        """`met` is nothing where the rounds do not agree."""
        self.goals.append((what, figure, goal, met))


def starvation(one, found):
    section = Section(one.title)
    xs = list(next(iter(found.values())))
    rows = []
    for name in sorted(found, key=NAMES.index):
        cells = [f"{median(rounds, 'ratio'):.0%} ({median(rounds, 'rps'):,.0f}/s)" for rounds in found[name].values()]
        rows.append([LABELS[name], *cells])
    section.text = table([f"left with {one.title.lower()}", *[f"{x:,}" for x in xs]], rows)
    section.text += "\n" + held(found, xs[-1])
    lines = [plot.Line(LABELS[name], points(found[name], "ratio", 100), COLOURS[name],
                       "" if name in OWN else "7 4") for name in sorted(found, key=NAMES.index)]
    section.svg = plot.lines(one.title, "What regular clients still get, beside the same server without the attack",
                             lines, f"{one.title.lower()} that attackers hold or try to hold", "throughput left, %",
                             goal=(100 * one.limit, f"goal: {one.limit:.0%}"))
    for name in OWN:
        if name in found:
            least = min(xs[1:], key=lambda x: median(found[name][x], "ratio"))
            rounds = [figures["ratio"] for figures in found[name][least]]
            section.goal(f"{LABELS[name]}, up to {xs[-1]:,} {one.title.lower()}; least at {least:,}",
                         f"{statistics.median(rounds):.0%} left ({min(rounds):.0%}–{max(rounds):.0%})", f"≥ {one.limit:.0%}",
                         at_least(rounds, one.limit))
    if one.key == "incomplete" and "apache" in found:
        worst = min((x for x in xs if x >= 150), default=xs[-1])
        left = median(found["apache"][worst], "ratio")
        section.goal(f"Apache alone collapses at {worst}", f"{left:.1%} left", "shown: < 10%", left < 0.1)
    return section


def held(found, most):
    """What the servers did with the most attackers: how many of them were connected, and which core was idle."""
    parts = [f"{LABELS[name]} {median(found[name][most], 'held'):,.0f}" for name in sorted(found, key=NAMES.index)]
    text = f"Of {most:,} attackers, so many were connected at the end of the measurement: {', '.join(parts)}."
    idle = [one["idle"] for name in found for one in found[name][most] if name in OWN]
    if idle:
        shares = (f"{core} {statistics.median(one[core] for one in idle):.0%}" for core in idle[0])
        text += f" Idle then, while our gates were in front: {', '.join(shares)}."
    return text + "\n"


def label_of(series):
    name, _, where = series.partition("/")
    return name, where


def infrequent(one, found):
    section = Section(one.title)
    xs = list(next(iter(found.values())))
    order = sorted(found, key=lambda series: (NAMES.index(label_of(series)[0]), label_of(series)[1]))
    ms = lambda rounds, key: f"{median(rounds, key) / 1e3:,.2f}"
    rows = [[f"{LABELS[label_of(series)[0]]}, {WHERE[label_of(series)[1]]}",
             *[f"{ms(rounds, 'p50_us')} / {ms(rounds, 'p99_us')}" for rounds in found[series].values()]]
            for series in order]
    section.text = table(["p50 / p99 in ms with bulk clients", *[f"{x:,}" for x in xs]], rows)
    lines = [plot.Line(f"{LABELS[label_of(series)[0]]}{', everywhere' if label_of(series)[1] == 'many' else ''}",
                       points(found[series], "p99_us", 1e-3), COLOURS[label_of(series)[0]],
                       "7 4" if label_of(series)[1] == "many" else "") for series in order]
    section.svg = plot.lines("Infrequent clients beside bulk clients",
                             "p99 latency of a small request; broken lines: bulk clients from everywhere", lines,
                             "bulk clients", "ms (logarithmic)", log_y=True)
    for series in order:
        name, where = label_of(series)
        if name in OWN:
            most = max(xs[1:], key=lambda x: median(found[series][x], "ratio"))
            rounds = [figures["ratio"] for figures in found[series][most]]
            section.goal(f"{LABELS[name]}, p99 with up to {xs[-1]:,} bulk clients, {WHERE[where]}; most with {most:,}",
                         f"{statistics.median(rounds):.1f}x of that with none ({min(rounds):.1f}–{max(rounds):.1f})",
                         f"≤ {one.limit:g}x", at_least([-ratio for ratio in rounds], -one.limit))
    return section


def filters(one, found):
    """Of each length of the chain the quietest round: what delays a single client is mostly the host, and never to its good."""
    section = Section(one.title)
    quietest = lambda rounds: [min(rounds, key=lambda figures: figures["p50_us"])]
    found = {name: {x: quietest(rounds) for x, rounds in series.items()} for name, series in found.items()}
    xs = list(next(iter(found.values())))
    rows, slopes = [], {}
    for name, series in found.items():
        medians = {x: median(rounds, "p50_us") for x, rounds in series.items()}
        slopes[name] = (medians[xs[-1]] - medians[xs[0]]) / (xs[-1] - xs[0])
        label = LABELS.get(name, "bare processes (hop.c)")
        rows.append([label, *[f"{value:.0f}" for value in medians.values()], f"**{slopes[name]:.1f}**"])
        if name == "bare":
            continue
        section.goal(f"{LABELS[name]}, each of {xs[-1]} chained filters", f"{slopes[name]:.1f} µs",
                     f"≤ {one.limit:g} µs", slopes[name] <= one.limit)
    section.text = table(["median latency in µs of the quietest round, with filters", *[str(x) for x in xs], "for each"], rows)
    lines = [plot.Line(LABELS.get(name, "bare processes"), points(found[name], "p50_us"),
                       COLOURS.get(name, "#888888"), "" if name in LABELS else "2 4") for name in found]
    section.svg = plot.lines(one.title, "Median latency of one request at a time, each on a new connection", lines,
                             "filter processes in the chain", "µs", log_x=False)
    return section


def policies(one, found):
    section = Section(one.title)
    on, off = (found[name][0][0]["instructions"] for name in ("on", "off"))
    rows = [["all, also those that are not on by default", f"{on:,}"], ["as few as can be", f"{off:,}"]]
    section.text = table(["policies", "instructions of the gate for a connection"], rows)
    section.goal("all policies of a gate together", f"{on - off:,} instructions for a connection", f"≤ {one.limit:,}",
                 on - off <= one.limit)
    return section


def tree(one, found):
    section, said = Section(one.title), found["tree"][0][0]
    section.text = "```text\n" + said["text"] + "\n```\n"
    mebibytes = max(int(word) for word in re.findall(r"(\d+) MiB   ", said["text"]))
    slowest = min((float(rate), name) for name, rate in re.findall(r"(insert|insert\+next|heaviest|next) ([\d.]+)", said["text"]))
    section.goal("a million addresses", f"at most {mebibytes} MiB", "≤ 256 MiB", mebibytes <= 256)
    section.goal(f"the slowest operation with the slowest kind of addresses: {slowest[1]}", f"{slowest[0]:g} million/s on a core",
                 "≥ 1 million/s", slowest[0] >= 1)
    return section


WRITERS = {"infrequent": infrequent, "filters": filters, "policies": policies, "tree": tree}


def goals_table(sections, judged=None):
    """The goals of these sections; only those of `judged`, if that is given, are said to be met or not."""
    rows = [[what, figure, goal, VERDICTS[met] if judged is None or section in judged else "of an earlier state"]
            for section in sections for what, figure, goal, met in section.goals]
    return table(["figure", "measured", "goal", ""], rows)


def of_this_state(sections, measured, about):
    """The sections that were measured with the programs of this run: figures of several states are not judged together."""
    return [section for key, section in sections.items() if measured[key]["about"]["versions"] == about["versions"]]


def said_of(about):
    """One line about the run in which an experiment was measured."""
    machine = about["machine"]
    return (f"{machine['date']}, measurements of {about['seconds']:g} s. {machine['kernel']}, "
            f"{machine['cpu']}, {machine['cores']} cores. {', '.join(about['versions'].values())}.\n")


def earlier(out):
    """What other runs have found and written there: {experiment: {"about": ..., "found": ...}}."""
    path = out / "conditioning" / "results.json"
    if not path.exists():
        return {}
    measured = json.loads(path.read_text(encoding="utf-8"))
    for one in measured.values():
        one["found"] = {name: {int(count): rounds for count, rounds in series.items()}
                        for name, series in one["found"].items()}
    return measured


def write(results, about, out, known):
    """Prints the figures; with `out`, writes the files, in which those of other experiments stay as they are.

    Returns whether every goal that was measured is met.
    `known` are all experiments, by their keys."""
    new = {key: {"about": about, "found": found} for key, found in results.items() if found}
    before = earlier(out) if out else {}
    measured = before | new
    measured = {key: measured[key] for key in known if key in measured}
    sections = {}
    for key, run in measured.items():
        writer = starvation if isinstance(known[key], Starvation) else WRITERS[key]
        sections[key] = writer(known[key], run["found"])
    lacking = "".join(f"Not measured: {LABELS[name]} ({why}).\n" for name, why in about["without"].items())
    lacking += "".join(f"Failed, and so without figures: {title}.\n" for title in about["failed"])
    print("\n" + goals_table([sections[key] for key in new]) + lacking)
    for key in new:
        print(f"{sections[key].title}\n\n{sections[key].text}")
    if out:
        judged = of_this_state(sections, measured, about)
        save(out, sections, measured, goals_table(sections.values(), judged) + "\n" + lacking)
    return all(met for key in new for *_, met in sections[key].goals)


def save(out, sections, measured, goals):
    folder = out / "conditioning"
    folder.mkdir(parents=True, exist_ok=True)
    text = INTRODUCTION + "## Goals\n\n" + goals + "\n"
    commands = {}
    for key, section in sections.items():
        text += f"## {section.title}\n\n"
        if section.svg:
            (folder / f"{key}.svg").write_text(section.svg, encoding="utf-8")
            text += f"![{section.title}](conditioning/{key}.svg)\n\n"
        text += section.text + "\n" + said_of(measured[key]["about"]) + "\n"
        commands |= measured[key]["about"]["commands"]
    text += NOTES.format(ballast=BALLAST, **next(iter(measured.values()))["about"]) + "\nCommands:\n\n"
    text += "".join(f"    {command}\n" for command in commands.values())
    (out / "CONDITIONING.md").write_text(text, encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    print(f"Written: CONDITIONING.md with {len(sections)} experiments")
