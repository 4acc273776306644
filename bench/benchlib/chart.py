"""The chart: for each row the ratio to each peer that has a bar, with its interval, and the bars themselves. SVG."""

import math
from xml.sax.saxutils import escape

from .report import bars, label

WIDTH, LEFT, RIGHT, TOP, ROW = 900, 420, 60, 66, 22
#: The ratios at both ends of the axis, which is logarithmic.
LOW, HIGH = 0.25, 4.0
COLOURS = {"met": "#2f7d46", "not met": "#b3372f", "not told apart": "#b07a1e"}
PLAIN = "#5b6470"
LEGEND = ("green: the bar (black mark) is met; red: not met; amber: not told apart; grey mark: the stretch; "
          "handshakes are turned round")
STYLE = "text{font:12px system-ui,sans-serif;fill:#222}.title{font-size:15px;font-weight:600}.small{font-size:11px;fill:#555}"


def at(ratio):
    """Where a ratio is on the axis."""
    share = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def text(x, y, words, anchor="start", kind=""):
    extra = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def line(x1, y1, x2, y2, colour, width=1.0):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width:g}"/>'


def row(title, bar, one, y):
    """The line of one bar. Handshakes are turned round, so that less is better everywhere."""
    turn = (lambda value: 1 / value) if bar.more else (lambda value: value)
    value, *ends = (turn(one[key]) for key in ("value", "low", "high"))
    colour = COLOURS.get(one["bar"], PLAIN)
    parts = [text(LEFT - 12, y + 4, f"{title.replace('`', '')} / {label(bar.beside)}", "end"),
             line(at(min(ends)), y, at(max(ends)), y, colour, 3),
             f'<circle cx="{at(value):.1f}" cy="{y}" r="4.5" fill="{colour}"/>',
             text(WIDTH - RIGHT + 10, y + 4, f"{one['value']:.2f}", kind="small")]
    if bar.limit is not None:
        parts.append(line(at(turn(bar.limit)), y - 8, at(turn(bar.limit)), y + 8, "#111", 2))
    if bar.stretch is not None:
        parts.append(line(at(turn(bar.stretch)), y - 6, at(turn(bar.stretch)), y + 6, "#8a8f98", 2))
    return parts


def svg(results, cases):
    """The whole picture."""
    rows = [(case.title, bar, one) for case in cases if case.name in results["cases"]
            for bar, one in bars(case, results["cases"][case.name]) if bar.beside]
    bottom = TOP + ROW * len(rows)
    size = f'width="{WIDTH}" height="{bottom + 30}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {bottom + 30}">',
             f"<style>{STYLE}</style>", f'<rect {size} fill="#fff"/>',
             text(16, 24, "Bulkhead beside others: the ratio of each figure (less is better)", kind="title"),
             text(16, 44, LEGEND, kind="small")]
    for ratio in (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4):
        parts.append(line(at(ratio), TOP - 10, at(ratio), bottom, "#9aa0a8" if ratio == 1 else "#e2e4e8"))
        parts.append(text(at(ratio), bottom + 16, f"{ratio:g}", "middle", "small"))
    for index, (title, bar, one) in enumerate(rows):
        parts += row(title, bar, one, TOP + ROW * index + 4)
    return "\n".join([*parts, "</svg>", ""])
