"""From the figures to what people read: NULL-SERVICE.md with the bars beside the figures, and the plots."""

import pathlib
import statistics

from benchlib import plot

HERE = pathlib.Path(__file__).resolve().parent
#: In words, with the colour of its line and how that is broken.
PEERS = {
    "ours": ("Bulkhead, Rust", "#1f4e9c", ""),
    "ours-handed": ("Bulkhead, Rust, handed over", "#1f4e9c", "7 4"),
    "ours-python": ("Bulkhead, Python", "#7c4ac0", ""),
    "nginx-axum": ("nginx, axum", "#2f8551", ""),
    "axum-each": ("nginx, axum for each service", "#2f8551", "7 4"),
    "granian": ("Granian (Python)", "#94c7a6", ""),
    "apache": ("Apache, mod_php", "#c2412d", ""),
    "nginx-fpm": ("nginx, php-fpm", "#e39a8c", ""),
}
COLUMNS = [("req/s", "per_second", "{:,.0f}"), ("CPU µs", "cpu_us", "{:.0f}"), ("of it database", "database_us", "{:.0f}"),
           ("switches", "switches", "{:.1f}"), ("p50 ms", "p50_ms", "{:.1f}"), ("p99 ms", "p99_ms", "{:.1f}"), ("failed", "bad", "{:.0f}")]
HEAD = """\
# The null service, measured

`bench/null-service/run` wrote this page, the plots and `null-service/results.json`: the benchmark of "Building Secure High-Performance Web
Services with OKWS" (Krohn, USENIX ATC 2004), section 5.2. Each request reads one row of the same table of {rows:,} rows in MariaDB by
its key and gets the row back; with ten services each answer has 3,000 more bytes, and requests go to all ten by chance.

"""
TEN = """
The averages are over all numbers of connections, as in the paper's table 2. With 200 connections each of ten services has 20, so that a turn
on the core serves few requests and finds caches that other processes have filled; with more connections a turn serves more of them. One
service alone needs more of the core than its part beside the gate and the site's worker (decision 0095), and is interrupted more often than ten
are: with 1,000 connections and more, a request to one of ten costs less.
"""
TAIL = """\
## How it was measured

- Servers and MariaDB share one processor core, and the clients (`wrk`) have another. CPU time is that of all processes of the server side
  for one request, the database's included, and requests per second are what that core carries.
- Interleaved: in each round every server is started in turn, and for each number of connections warmed for a second and measured for
  {seconds} s; in the other order in the next round. Tables show medians of {rounds} rounds; bands in the plots are their range.
- Each service of Bulkhead is a process in a jail, with a uid of its own, and so are the gate, the data proxy and its connector. What the
  peers have is in `null-service/peers.py`: Apache with the prefork model and mod_php with persistent connections; nginx with 8 processes of
  php-fpm; nginx before an axum program with a pool of 4 connections (as the data proxy has), for all services or for
  each; Granian with one worker and a pool. "Handed over" is `takes_connections = true`.
- Access logs are on, except with Granian, which has no server in front. `switches` are context switches of all processes for one request.

{machine}
"""


def medians(rounds):
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


def find(results, services, close, concurrency):
    return next((case["peers"] for case in results["cases"]
                 if (case["services"], case["close"], case["concurrency"]) == (services, close, concurrency)), None)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def bars(results):
    """Each bar on the average and at each number of connections: what was found, and whether that is enough."""
    measured = sorted({case["concurrency"] for case in results["cases"]})
    rows = []
    for name in ("ours", "ours-handed"):
        for where, concurrencies in [("average", measured), *((f"{number:,} connections", [number]) for number in measured)]:
            done = lambda services, peer: statistics.mean(
                1 / medians(find(results, services, True, number)[peer])["cpu_us"] for number in concurrencies)
            said = f"{PEERS[name][0]}, {where}"
            rows.append([f"{said}: beside Apache", *ratio(done(1, name) / done(1, "apache"), 2.7)])
            rows.append([f"{said}: beside nginx and axum", *ratio(done(1, name) / done(1, "nginx-axum"), 1.2)])
            rows.append([f"{said}: ten services beside one", *ratio(done(10, name) / done(1, name), 0.9)])
    return table(["requests for each second of CPU time, one request per connection", "measured", "bar", ""], rows) + TEN


def ratio(value, least):
    return f"{value:.2f} times", f"≥ {least:g}", "met" if value >= least else "**not met**"


def section(case):
    how = "one request per connection" if case["close"] else "connections that are kept"
    services = {1: "One service", 10: "Ten services"}.get(case["services"], f"{case['services']} services")
    rows = []
    for name in (name for name in PEERS if name in case["peers"]):
        found = medians(case["peers"][name])
        rows.append([PEERS[name][0], *(form.format(found[key]) for _, key, form in COLUMNS)])
    title = f"{services}, {how}, {case['concurrency']:,} at a time"
    return f"### {title}\n\n" + table(["", *[title for title, *_ in COLUMNS]], rows) + "\n"


PLOTS = [("throughput", "per_second", "Requests per second of one core", "requests/s", False),
         ("median", "p50_ms", "Half of all requests take longer", "ms (logarithmic)", True),
         ("latency", "p99_ms", "The slowest percentile", "ms (logarithmic)", True)]
POOL = [("pool-throughput", "per_second", "One service in many processes: requests per second of one core", "requests/s"),
        ("pool-switches", "switches", "One service in many processes: context switches for each request", "switches")]
SHADES = ("#1f4e9c", "#7c4ac0", "#c2412d")


def plots(results):
    """{name: picture}, one for each number of services and each figure: one request per connection, as in the paper."""
    found = {}
    for services in sorted({case["services"] for case in results["cases"]}):
        cases = [case for case in results["cases"] if case["services"] == services and case["close"]]
        for name, key, title, unit, log in PLOTS:
            lines = []
            for peer, (label, colour, dashes) in PEERS.items():
                points = {case["concurrency"]: spread(case["peers"][peer], key) for case in cases if peer in case["peers"]}
                if points:
                    lines.append(plot.Line(label, points, colour, dashes))
            what = f"{services} service{'s' if services > 1 else ''}, one request per connection"
            found[f"{name}-{services}"] = plot.lines(title, what, lines, "connections at a time", unit, log_y=log)
    return found | crowd(results) | pool(results)


def crowd(results):
    """How long requests of many connections take: the paper's figure 10, with its axes exchanged."""
    lines = []
    for peer, (label, colour, dashes) in PEERS.items():
        curves = results["crowd"].get(peer, [])
        points = {float(part): spread(curves, part) for part in (curves[0] if curves else ())}
        lines += [plot.Line(label, points, colour, dashes)] if points else []
    what = "1 service, one request per connection, 1,600 at a time"
    title = "How many percent of all requests take no longer"
    return {"crowd": plot.lines(title, what, lines, "percent of requests", "ms (logarithmic)", log_y=True, log_x=False)} if lines else {}


def pool(results):
    """What more processes of one service do: the paper's figures 6 and 7."""
    found = {}
    for name, key, title, unit in POOL if results["pool"] else ():
        lines = [plot.Line(f"{int(concurrency):,} connections", {int(workers): spread(rounds, key) for workers, rounds in each.items()}, colour)
                 for colour, (concurrency, each) in zip(SHADES, results["pool"].items())]
        found[name] = plot.lines(title, f"{PEERS['ours-handed'][0]}, one request per connection", lines, "processes", unit)
    return found


def averages(results):
    """Throughputs over all numbers of connections, one request for each: the paper's table 2."""
    rows = []
    for name in PEERS:
        of = lambda services: statistics.mean(medians(case["peers"][name])["per_second"] for case in results["cases"]
                                              if case["services"] == services and case["close"])
        rows.append([PEERS[name][0], f"{of(1):,.0f}", f"{of(10):,.0f}", f"{100 * (1 - of(10) / of(1)):.0f}%"])
    return table(["requests/s, average of all numbers of connections", "1 service", "10 services", "less"], rows)


def spread(rounds, key):
    values = [one[key] for one in rounds]
    return statistics.median(values), min(values), max(values)


def write(results):
    pictures = plots(results)
    for name, picture in pictures.items():
        (HERE / f"{name}.svg").write_text(picture, encoding="utf-8")
    machine = results["machine"]
    versions = ", ".join(filter(None, results["versions"].values()))
    about = f"{machine['date']}. {machine['kernel']}, {machine['cpu']}, {machine['cores']} cores. {versions}."
    rounds = min(len(rounds) for case in results["cases"] for rounds in case["peers"].values())
    text = HEAD.format(rows=results["rows"]) + "## Bars\n\n" + bars(results) + "\n"
    text += "## Averages\n\n" + averages(results) + "\n## Plots\n\n"
    text += "".join(f"![{name}](null-service/{name}.svg)\n\n" for name in pictures) + "## All figures\n\n"
    text += "".join(section(case) for case in results["cases"])
    text += TAIL.format(seconds=results["seconds"], rounds=rounds, machine=about)
    (HERE.parent / "NULL-SERVICE.md").write_text(text, encoding="utf-8")
    print("Written: bench/NULL-SERVICE.md")
