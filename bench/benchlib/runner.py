"""Runs cases: starts the servers of each, measures them round by round in an order that rotates, and stops them."""

import subprocess
import traceback

from . import case as cases
from . import judge, load

KEYS = {"p256": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa2048": ["rsa:2048"], "rsa4096": ["rsa:4096"]}


class Run:
    """One run: the options, the folder for all servers, and how much is still to do."""

    def __init__(self, options, work):
        self.options, self.work, self.started = options, work, 0
        self.left, self.certificates = 0.0, {}

    def certificate(self, key):
        """A certificate for bench.test with its key, of one of the kinds of KEYS, in one file."""
        if key not in self.certificates:
            made, secret, both = (self.work / f"{key}.{end}" for end in ("crt", "key", "pem"))
            subprocess.run(["openssl", "req", "-x509", "-newkey", *KEYS[key], "-nodes", "-days", "30", "-subj", "/CN=bench.test",
                            "-addext", "subjectAltName=DNS:bench.test", "-keyout", secret, "-out", made],
                           check=True, capture_output=True)
            both.write_text(secret.read_text() + made.read_text())
            both.chmod(0o600)
            self.certificates[key] = both
        return self.certificates[key]

    def rounds(self, case):
        return min(case.rounds or self.options.rounds, self.options.rounds)

    def cost(self, case):
        """About how many seconds a case takes."""
        starts = 1 + (self.rounds(case) if case.fresh else 1) * len(case.peers) * 0.7
        return starts + self.rounds(case) * len(case.peers) * case.load.cost(self.options)

    def measure_all(self, chosen):
        """{case: what was found}, and for those that could not be measured: why."""
        found, failed = {}, {}
        for case in chosen:
            if why := cases.lacking(case, self.options):
                print(f"{case.name}: left out: {why}", flush=True)
                failed[case.name] = f"left out: {why}"
        chosen = [case for case in chosen if case.name not in failed]
        self.left = sum(map(self.cost, chosen))
        for case in chosen:
            print(f"== {case.name}: {case.title}  (about {self.left:.0f} s left)", flush=True)
            try:
                found[case.name] = self.measure(case)
            # Whatever it is: the other cases are measured, and the report names this one.
            except Exception as error:
                traceback.print_exc()
                failed[case.name] = f"failed: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
            self.left -= self.cost(case)
        return found, failed

    def measure(self, case):
        """{'rounds': {peer: [figures]}, ...} of one case."""
        subjects = [cases.Subject(case, peer, self) for peer in cases.chosen(case, self.options)]
        rounds, about = {subject.name: [] for subject in subjects}, {}
        try:
            if not case.fresh:
                self.start(subjects, about)
            for turn in range(self.rounds(case)):
                first = turn % len(subjects)
                for subject in subjects[first:] + subjects[:first]:
                    if case.fresh:
                        self.start([subject], about)
                    figures = load.quietly(case.load, subject, self.options)
                    if case.fresh:
                        self.note_log(subject, about)
                        subject.stop()
                    rounds[subject.name].append(rounded(figures))
                    print(progress(case, turn, subject, figures), flush=True)
            if not case.fresh:
                for subject in subjects:
                    self.note_log(subject, about)
        finally:
            for subject in subjects:
                subject.stop()
        result = {"rounds": rounds, **about, "load": case.load.command(self.options)}
        self.warn_about_logs(case, result)
        return result

    def start(self, subjects, about):
        """Starts subjects and checks that each does the work; `about` gets what the report says of them."""
        for subject in subjects:
            subject.start()
            head = subject.check() if subject.case.load.checks else None
            about.setdefault("commands", {})[subject.name] = subject.commands()
            about.setdefault("head_bytes", {})[subject.name] = head

    def note_log(self, subject, about):
        about.setdefault("log", {})[subject.name] = subject.log()

    def warn_about_logs(self, case, result):
        """Says so if a server logged fewer bytes than its requests must have: then the comparison is not fair."""
        for name, log in result.get("log", {}).items():
            requests = sum(one.get("requests", 0) for one in result["rounds"][name])
            if case.load.logged and log is not None and log[0] < 40 * requests:
                print(f"WARNING: {case.name}: less access log than requests from {name}", flush=True)
                result.setdefault("silent", []).append(name)


def rounded(value):
    """Figures with six digits: more is noise, and the file has to be read by people."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def progress(case, turn, subject, figures):
    """A line for one measurement."""
    words = [f"{case.name:16} round {turn + 1:2} {subject.name:18}"]
    words += [f"{NAMES[key][0]} {NAMES[key][1].format(figures[key])}" for key in NAMES if figures.get(key) is not None]
    if figures.get("errors"):
        words.append(f"{figures['errors']} ERRORS")
    return "  ".join(words)


#: What a line of progress shows of each figure.
NAMES = {"rps": ("", "{:8.0f}/s"), "cpu_us": ("CPU", "{:8.2f} µs"), "p99_us": ("p99", "{:9.0f} µs"),
         "server_busy": ("busy", "{:4.0%}"), "load_busy": ("load", "{:4.0%}"), "kib_each": ("each", "{:6.1f} KiB"),
         "hop_us": ("hop", "{:6.1f} µs"), "memory_mib": ("memory", "{:7.1f} MiB"), "ready_s": ("ready", "{:6.2f} s"),
         "start_cpu_s": ("CPU", "{:6.2f} s")}


def summary(case, found):
    """Lines for people: each server's medians, then each bar with its verdict."""
    lines = []
    for name, rounds in found["rounds"].items():
        parts = [f"{key} {judge.median(rounds, key):,.2f}" for key in ("rps", *case.figures)
                 if judge.median(rounds, key) is not None]
        own = judge.programs(rounds) if name == "ours" else {}
        if len(own) > 1:
            parts.append("(" + ", ".join(f"{program} {value:.1f}" for program, value in own.items() if value >= 0.05) + ")")
        lines.append(f"  {name:18} " + "  ".join(parts))
    for bar in case.bars:
        if not {"ours", bar.beside or "ours"} <= set(found["rounds"]):
            continue
        one = judge.judged(found["rounds"], bar)
        words = f"  {bar.figure}{' beside ' + bar.beside if bar.beside else ''}: {one['value']:.2f}"
        words += f" [{one['low']:.2f}, {one['high']:.2f}]"
        for key in ("limit", "stretch"):
            if (limit := getattr(bar, key)) is not None:
                words += f"; {'bar' if key == 'limit' else key} {limit:g}: {one['bar' if key == 'limit' else key]}"
        lines.append(words)
    return "\n".join(lines)
