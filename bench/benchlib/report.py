"""From the rounds of every cell to medians, ratios, the Markdown report and the JSON file."""

import json
import statistics

from .wrk import DISTURBED, arguments

LABELS = {"ours": "Bulkhead", "nginx": "nginx", "h2o": "h2o", "bare": "bare loop"}
MEDIANS = ["rps", "p50_us", "p99_us", "cpu_us", "core_us", "server_busy", "wrk_busy", "others"]
NOTES = """\
- **Interleaved**: for every cell each round measures every server once, in an order that rotates; all servers run
  from beginning to end. Every figure is the median of its rounds. A measurement in which other programs took more
  than 10% of either core is repeated; the quietest try is kept, and marked † if even that one was disturbed.
- **CPU µs/request** is user and system time of *all* processes of a server (Bulkhead is several): `schedstat` of
  every thread, read before and after wrk ran, divided by the requests wrk completed. Opening and closing the
  connections and writing the log are therefore included. The range is that of the rounds.
- **Server busy** is the share of its core (number {server_core}) that the server used; **wrk busy** the same for wrk
  (core {wrk_core}). Where wrk is near 100% and the server is not, wrk limits the throughput and only CPU per request
  compares the servers.
- The kernel's work for packets on the loopback device is charged to whichever process sent them, so a part of what a
  request costs the network stack is wrk's and is not counted for any server.
- **Access logs are on**, combined format, on the same disk, for all but the bare loop. nginx writes its log in
  batches (`buffer=64k flush=1500ms`), and so does Bulkhead; h2o 2.2 cannot, and writes each line by itself.
- nginx: one worker, `open_file_cache`, `tcp_nodelay`; `sendfile` is off, since nginx needs less CPU without it for
  files this small. h2o: one thread, its own file cache.
- **bare** is an epoll loop with two answers ready in memory and no log: the floor, not a server.
- Kept alive: wrk sends the next request on the same connection. Close: `Connection: close`, a new connection for
  every request.
"""


def medians(rounds):
    """The median of each figure over the rounds of one server in one cell, and the sums of what went wrong."""
    result = {key: statistics.median(one[key] for one in rounds) for key in MEDIANS}
    result["cpu_us_range"] = [min(one["cpu_us"] for one in rounds), max(one["cpu_us"] for one in rounds)]
    result["errors"] = sum(one["errors"] for one in rounds)
    result["non_2xx"] = sum(one["non_2xx"] for one in rounds)
    result["disturbed"] = sum(one["others"] > DISTURBED for one in rounds)
    names = {name for one in rounds for name in one["cpu_by_program_us"]}
    result["cpu_by_program_us"] = {
        name: statistics.median(one["cpu_by_program_us"].get(name, 0.0) for one in rounds) for name in sorted(names)}
    return result


def ratios(cell, first="ours"):
    """What the first server needs and delivers beside each other one, as ratios of the medians."""
    if first not in cell:
        return {}
    return {name: {"cpu": cell[first]["cpu_us"] / max(other["cpu_us"], 1e-9),
                   "throughput": cell[first]["rps"] / max(other["rps"], 1e-9)}
            for name, other in cell.items() if name != first}


def summarise(rounds):
    """{cell name: {server: [figures]}} to {cell name: {'servers': medians, 'ratios': ours beside each peer}}"""
    result = {}
    for cell, servers in rounds.items():
        values = {name: medians(list_) for name, list_ in servers.items() if list_}
        result[cell] = {"servers": values, "ratios": ratios(values)}
    return result


def time_text(microseconds):
    """Microseconds in the unit that reads best."""
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    return f"{microseconds / 1000:.2f} ms"


def table(header, rows):
    """A Markdown table; the first two columns to the left, figures to the right."""
    rule = [":--" if index < 2 else "--:" for index in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def figures_table(summary, cells):
    header = ["cell", "server", "requests/s", "p50", "p99", "errors", "CPU µs/request", "range", "server busy",
              "wrk busy"]
    rows = []
    for cell in cells:
        for name, one in summary[cell.name]["servers"].items():
            low, high = one["cpu_us_range"]
            rows.append([cell.title, LABELS[name] + (" †" if one["disturbed"] else ""), f"{one['rps']:,.0f}",
                         time_text(one["p50_us"]), time_text(one["p99_us"]), str(one["errors"] + one["non_2xx"]),
                         f"**{one['cpu_us']:.2f}**", f"{low:.2f}–{high:.2f}", f"{one['server_busy']:.0%}",
                         f"{one['wrk_busy']:.0%}"])
    return table(header, rows)


def ratio_table(summary, cells):
    peers = list(dict.fromkeys(name for cell in cells for name in summary[cell.name]["ratios"]))
    header = ["cell", ""] + [f"beside {LABELS[name]}" for name in peers]
    rows = []
    for cell in cells:
        found = summary[cell.name]["ratios"]
        for key, text in (("cpu", "CPU per request"), ("throughput", "throughput")):
            rows.append([cell.title, text] + [f"{found[name][key]:.2f}" if name in found else "–" for name in peers])
    return table(header, rows)


def program_table(summary, cells):
    """Where Bulkhead's time goes, by process name."""
    parts = {cell: summary[cell.name]["servers"]["ours"]["cpu_by_program_us"]
             for cell in cells if "ours" in summary[cell.name]["servers"]}
    names = sorted({name for part in parts.values() for name in part})
    rows = [[cell.title, ""] + [f"{part.get(name, 0.0):.2f}" for name in names] for cell, part in parts.items()]
    return table(["cell", "", *names], rows)


def log_text(logs):
    """How long the lines are that each server logs."""
    return ", ".join(f"{LABELS[name]} {'none' if size is None else size}" for name, size in logs.items())


def markdown(run, summary, cells):
    """The whole report."""
    facts, options = run["machine"], run["options"]
    virtual = ", a virtual machine" if facts["virtual"] else ""
    parts = ["# Benchmark: static files", "",
             "Written by `bench/run`; do not edit. How to run it: `bench/run --help`.", "",
             f"- Date: {facts['date']}", f"- Kernel: {facts['kernel']}",
             f"- Processor: {facts['cpu']}, {facts['cores']} cores{virtual}",
             f"- Rounds: {options['rounds']} of {options['seconds']} s each, {options['warmup']} s of warm-up before"]
    parts += [f"- {LABELS.get(name, name)}: {text}" for name, text in run["versions"].items()]
    parts += [f"- Bytes of a line of access log: {log_text(run['log_line_bytes'])}",
              f"- Bytes of response head with 100.bin: "
              + ", ".join(f"{LABELS[name]} {size}" for name, size in run["head_bytes"].items()), ""]
    if any(cell["ratios"] for cell in summary.values()):
        parts += ["## Bulkhead beside the others", "",
                  "CPU below 1 means that Bulkhead needs less; throughput above 1 means that it delivers more.", "",
                  ratio_table(summary, cells), ""]
    parts += ["## Figures", "", figures_table(summary, cells), ""]
    if any("ours" in cell["servers"] for cell in summary.values()):
        parts += ["## Bulkhead's CPU µs per request, by process", "", program_table(summary, cells), ""]
    parts += ["![CPU per request](results.svg)", "", "## How it was measured", "",
              NOTES.format(server_core=options["server_core"], wrk_core=options["wrk_core"])]
    parts += ["## Commands", "", "```sh", "# servers, with the files in bench/peers", *run["commands"], "",
              "# load, one line for each cell",
              *(_typed(cell, options) for cell in cells), "```", ""]
    return "\n".join(parts)


def _typed(cell, options):
    words = arguments(cell, options["seconds"], "http://127.0.0.1:PORT", options["wrk_core"])
    return " ".join(f'"{word}"' if " " in word else word for word in words)


def as_json(run, summary, rounds):
    """Everything, with every round, for other programs to read."""
    return json.dumps({**run, "summary": summary, "rounds": rounds}, indent=1, ensure_ascii=False) + "\n"
