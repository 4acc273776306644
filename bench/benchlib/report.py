"""The report of a run: docs/performance.md, which is made of nothing but the results and the cases."""

import json
import pathlib
import re

from . import judge
from .load import DISTURBED

#: What people have written about rows whose bar is not met: CASE.md.
NOTES_OF = pathlib.Path(__file__).resolve().parent.parent / "notes"
LABELS = {"ours": "Bulkhead"}
#: A figure's name, how it is written, and with which unit.
FIGURES = {
    "cpu_us": ("CPU per request", "{:,.2f}", "µs"),
    "p99_us": ("p99", "{:,.2f}", "ms"),
    "per_cpu_second": ("per second of CPU", "{:,.0f}", "/s"),
    "kib_each": ("memory of each", "{:,.1f}", "KiB"),
    "hop_us": ("latency of each hop", "{:,.1f}", "µs"),
    "memory_mib": ("memory", "{:,.0f}", "MiB"),
    "ready_s": ("time until ready", "{:,.2f}", "s"),
    "start_cpu_s": ("CPU until ready", "{:,.2f}", "s"),
}
INTRODUCTION = """\
# Performance

What each path costs: the CPU time of *all* processes of a server for a request, beside other servers, in interleaved rounds
of one run on one machine. `make bench` made this page, the chart and `bench/results.json`; do not edit it. What is measured
stands in `bench/cases/`, and the configurations, ours and theirs, with the reason why each is fair, in `bench/peers/`.
Bulkhead runs with everything that users get by default: access log, limits, connection conditioning, all layers of isolation.
"""
NOTES = """\
- **Interleaved**: in each round every server of a row is measured once, in an order that rotates; all of them run from
  beginning to end, but where memory or the start is measured. A measurement in which other programs took more than a tenth
  of either core is repeated; the quietest try is kept, and marked † if even that one was disturbed.
- **CPU per request** is user and system time of all processes of a server: `schedstat` of every thread, read before and
  after the client ran, divided by the requests that it completed. Opening and closing the connections and writing the log
  are part of it. Programs behind a server are counted if the row says so.
- **A ratio** is the median of the ratios within each round. The interval beside it has the true median in it with a
  probability of 90% or more (from the least to the most with fewer than eight rounds).
- **A bar** is met or missed if the whole interval is on one side of it. Otherwise noise would decide: it is *not told
  apart*. With fewer than three rounds nothing is judged.
- **Busy** is the share of its core that a server used, and that the client (with programs behind that are not counted) used
  of the other. Where the client is near 100% and the server is not, the client limits the throughput, and only CPU time
  compares the servers. Clients have 64 connections where the row says nothing else.
- The kernel's work for packets on the loopback device is charged to whichever process sent them, so a part of what a
  request costs the network stack is the client's and is not counted for any server.
- **Access logs are on**, combined format or alike, on the same disk, for all servers but bare programs. nginx writes its
  log in batches (`buffer=64k flush=1500ms`), as Bulkhead does; h2o, HAProxy and Apache write each line by itself.
- Every server has one worker, as it has one core. nginx has `sendfile on`, as Debian configures it.
"""


def label(name):
    return LABELS.get(name, name)


def scaled(figure, value):
    return value / 1000 if figure == "p99_us" else value


def written(figure, value):
    """A figure with its unit."""
    _, form, unit = FIGURES[figure]
    return form.format(scaled(figure, value)) + ("" if unit == "/s" else " ") + unit


def table(header, rows, left=2):
    """A Markdown table; the first columns to the left, figures to the right."""
    rule = [":--" if index < left else "--:" for index in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def bars(case, found):
    """The bars of a case that can be judged: (bar, what it comes to)."""
    return [(bar, judge.judged(found["rounds"], bar)) for bar in case.bars
            if {"ours", bar.beside or "ours"} <= {name for name, rounds in found["rounds"].items() if rounds}]


def limit(bar, key, verdict):
    """A bar or a stretch in words: what it asks for, and whether that is reached."""
    value = getattr(bar, key)
    if value is None:
        return "–"
    words = f"{value:g}" if bar.beside else written(bar.figure, value)
    emphasis = "**" if key == "limit" else ""
    return f"{'≥' if bar.more else '≤'} {words}: {emphasis}{verdict}{emphasis}"


def bars_table(results, cases):
    """One line for each bar of each row; a row without any has its figure alone."""
    rows = []
    for case in cases:
        found = results["cases"].get(case.name)
        if not found:
            if case.name in results["failed"]:
                rows.append([case.title, results["failed"][case.name], "", "", "", ""])
            continue
        ours = lambda figure: written(figure, judge.median(found["rounds"]["ours"], figure))
        judged = bars(case, found)
        for bar, one in judged:
            name = FIGURES[bar.figure][0]
            if bar.beside:
                other = written(bar.figure, judge.median(found["rounds"][bar.beside], bar.figure))
                ratio = f"{one['value']:.2f} ({one['low']:.2f}–{one['high']:.2f})"
                beside = f"{label(bar.beside)} {other}"
            else:
                ratio, beside = f"{written(bar.figure, one['low'])} – {written(bar.figure, one['high'])}", "–"
            rows.append([case.title, f"{name}: {ours(bar.figure)}", beside, ratio, limit(bar, "limit", one["bar"]),
                         limit(bar, "stretch", one["stretch"])])
        if not judged and found["rounds"].get("ours"):
            rows.append([case.title, f"{FIGURES[case.figures[0]][0]}: {ours(case.figures[0])}", "–", "–", "–", "–"])
    return table(["path", "Bulkhead", "beside", "ratio or range", "bar", "stretch"], rows, 6)


def figures_table(results, cases):
    """The medians of every server, with the range of the first figure of its row."""
    rows = []
    for case in cases:
        for name, rounds in results["cases"].get(case.name, {"rounds": {}})["rounds"].items():
            rows.append(figures_row(case, name, rounds))
    header = ["path", "server", "requests/s", "p50", "p99", "errors", "figure", "range", "others", "busy", "client busy"]
    return table(header, [row for row in rows if row])


def figures_row(case, name, rounds):
    main, *others = [figure for figure in case.figures if judge.median(rounds, figure) is not None] or [None]
    if main is None:
        return None
    values = [one[main] for one in rounds]
    median = lambda key: judge.median(rounds, key)
    show = lambda key, form, factor=1: "–" if median(key) is None else form.format(median(key) * factor)
    mark = " †" if any(one.get("others", 0) > DISTURBED for one in rounds) else ""
    return [case.name, label(name) + mark, show("rps", "{:,.0f}"), show("p50_us", "{:.2f} ms", 1e-3),
            show("p99_us", "{:.2f} ms", 1e-3), str(sum(one.get("errors", 0) for one in rounds)),
            f"**{written(main, median(main))}**", f"{written(main, min(values))} – {written(main, max(values))}",
            ", ".join(f"{FIGURES[key][0]} {written(key, median(key))}" for key in others if key != "p99_us") or "–",
            show("server_busy", "{:.0%}"), show("load_busy", "{:.0%}")]


def programs_table(results, cases):
    """Where our CPU time goes, by process: one column for each that has a part worth a figure anywhere."""
    parts = {case.name: judge.programs(results["cases"][case.name]["rounds"].get("ours", []))
             for case in cases if case.name in results["cases"]}
    parts = {name: {program: value for program, value in part.items() if value >= 0.05} for name, part in parts.items()}
    rows = [[name, ", ".join(f"{program} {value:.1f}" for program, value in sorted(part.items(), key=lambda item: -item[1]))]
            for name, part in parts.items() if part]
    return table(["path", "µs of each process"], rows)


def facts(results):
    """What the run was: machine, programs, options."""
    run, machine = results["run"], results["run"]["machine"]
    virtual = ", a virtual machine" if machine["virtual"] else ""
    lines = [f"- Date: {machine['date']}", f"- Kernel: {machine['kernel']}",
             f"- Processor: {machine['cpu']}, {machine['cores']} cores{virtual}",
             "- Rounds: {rounds} of {seconds} s each, {warmup} s of load before".format(**run["options"])]
    return lines + [f"- {label(name)}: {text}" for name, text in run["versions"].items()]


def commands(results, cases):
    """What was run, as anyone may type it, with the files of bench/peers."""
    lines = []
    for case in cases:
        found = results["cases"].get(case.name)
        if found:
            lines += ["", f"    # {case.name}"]
            seen = [line for peer in found.get("commands", {}).values() for line in peer]
            lines += [f"    {line}" for line in dict.fromkeys(seen)] + [f"    {found['load']}"]
    return lines


def notes(results, cases):
    return [f"- **{case.title}**: {case.note}" for case in cases if case.note and case.name in results["cases"]]


def missed(results, cases):
    """The rows whose bar or stretch is not met, with what is written about them in bench/notes."""
    parts = []
    for case in cases:
        path = NOTES_OF / f"{case.name}.md"
        judged = bars(case, results["cases"].get(case.name, {"rounds": {}}))
        verdicts = [one[key] for _, one in judged for key in ("bar", "stretch")]
        if path.is_file() and {judge.NOT_MET, judge.UNKNOWN} & set(verdicts):
            parts += [f"### {case.title}", "", path.read_text(encoding="utf-8").strip(), ""]
    return ["## Where the rest goes", "", *parts] if parts else []


def markdown(results, cases):
    """The whole page."""
    parts = [INTRODUCTION, "## Bars", "",
             "A ratio below 1 means that Bulkhead needs less; handshakes are per second of CPU, and more is better. What a bar "
             "asks for, how it is judged, and what the marks mean: [how it was measured](#how-it-was-measured).", "",
             bars_table(results, cases), "", "![Ratios and bars](performance.svg)", "",
             *missed(results, cases), "## Figures", "", figures_table(results, cases), "", "## Where Bulkhead's CPU time goes", "",
             programs_table(results, cases), "", "## The run", "", *facts(results), "", "## How it was measured", "",
             NOTES + "\n".join(notes(results, cases)), "", "## Commands", "",
             "`taskset` gives servers one core and clients the other. Configurations are in `bench/peers/`; the words between @ "
             "signs are replaced.", *commands(results, cases), ""]
    return "\n".join(parts)


def as_json(results):
    """Every round, for other programs to read."""
    text = json.dumps(results, indent=1, ensure_ascii=False)
    # The figures of a round on a line of their own: a page for each case instead of ten.
    one_line = lambda found: re.sub(r"\s*\n\s*", " ", found[0]) if '"requests"' in found[0] else found[0]
    return re.sub(r"\{([^{}]|\{[^{}]*\})*\}", one_line, text) + "\n"


def readme(text, results):
    """README.md with the figures of this run in its table."""
    rows = {"100 B kept alive": "static-100b", "100 B, a new connection each": "close-100b"}
    for words, name in rows.items():
        if name in results["cases"]:
            ours, nginx = (judge.median(results["cases"][name]["rounds"][who], "cpu_us") for who in ("ours", "nginx"))
            text = re.sub(rf"(\| CPU per request, {words} )\| [\d.]+ µs \| [\d.]+ µs \|",
                          lambda found: f"{found[1]}| {ours:.1f} µs | {nginx:.1f} µs |", text)
    commit = re.search(r"commit (\w+)", results["run"]["versions"]["ours"])
    return re.sub(r"at commit \w+", f"at commit {commit[1]}", text) if commit else text
