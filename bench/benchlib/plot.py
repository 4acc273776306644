"""Line plots as SVG: one line for each server, with its name at its end; the range of the rounds behind it."""

import math

from benchlib.chart import text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 880, 452, 64, 236, 92, 56
STYLE = ("text{font:12px 'Helvetica Neue',Helvetica,Arial,sans-serif;fill:#3b4048}"
         ".title{font-size:17px;font-weight:600;fill:#16191d}.note{font-size:12.5px;fill:#6a717c}"
         ".tick{font-size:11.5px;fill:#6a717c}.end{font-size:12.5px;font-weight:600}"
         ".goal{font-size:11.5px;fill:#9a6a00;paint-order:stroke;stroke:#fff;stroke-width:4px}")


def nice(limit):
    """A round step that divides the axis into four to eight parts."""
    for power in range(-2, 6):
        for factor in (1, 2, 5):
            step = factor * 10.0 ** power
            if limit / step <= 8:
                return step
    return limit


class Line:
    """A line of a plot: its label, its points {x: (value, least, greatest)}, its colour, and whether it is broken."""

    def __init__(self, label, points, colour, dashes=""):
        self.label, self.points, self.colour, self.dashes = label, points, colour, dashes


class Axes:
    """Where a value is on the paper. The x axis has its figures at places of log(1 + x / first), or evenly."""

    def __init__(self, xs, low, high, log_y, log_x):
        self.low, self.high, self.log_y = low, high, log_y
        first = next((x for x in xs if x), 1)
        place = (lambda x: math.log2(1 + x / first)) if log_x else float
        span = place(max(xs)) or 1
        self.x = lambda x: LEFT + 14 + (WIDTH - LEFT - RIGHT - 28) * place(x) / span

    def y(self, value):
        height = HEIGHT - TOP - BOTTOM
        if self.log_y:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return TOP + height * (1 - share)

    def ticks(self):
        if self.log_y:
            power = math.log10(self.low)
            return [10 ** step for step in range(math.ceil(power), math.floor(math.log10(self.high)) + 1)]
        step = nice(self.high)
        return [step * index for index in range(int(self.high / step + 1e-9) + 1)]


def number(value):
    if value >= 1000:
        return f"{value / 1000:g}k" if value >= 10_000 else f"{value:,.0f}"
    return f"{value:g}"


def apart(places, least=16.0):
    """Labels pushed apart until none covers another: {key: y}, in their order."""
    order = sorted(places, key=places.get)
    ys = [places[key] for key in order]
    for _ in range(200):
        moved = False
        for above in range(len(ys) - 1):
            lacking = least - (ys[above + 1] - ys[above])
            if lacking > 0.01:
                ys[above], ys[above + 1], moved = ys[above] - lacking / 2, ys[above + 1] + lacking / 2, True
        if not moved:
            break
    return dict(zip(order, ys))


def frame(axes, xs, x_label, y_label, show):
    parts = []
    for tick in axes.ticks():
        y = axes.y(tick)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e6e8ec"/>')
        parts.append(text(LEFT - 9, y + 4, show(tick), "end", "tick"))
    bottom = HEIGHT - BOTTOM
    parts.append(f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}" stroke="#9aa1ab"/>')
    last = -100.0
    for x in xs:
        place = axes.x(x)
        parts.append(f'<line x1="{place:.1f}" y1="{bottom}" x2="{place:.1f}" y2="{bottom + 5}" stroke="#9aa1ab"/>')
        if place - last > 30:
            parts.append(text(place, bottom + 19, number(x), "middle", "tick"))
            last = place
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, x_label, "middle", "note"))
    parts.append(text(24, TOP - 14, y_label, kind="tick"))
    return parts


def drawn(line, axes):
    """One line, its points, and how far the rounds lay apart."""
    xs = sorted(line.points)
    at = lambda x, which: f"{axes.x(x):.1f},{axes.y(line.points[x][which]):.1f}"
    band = " ".join([at(x, 1) for x in xs] + [at(x, 2) for x in reversed(xs)])
    dashes = f' stroke-dasharray="{line.dashes}"' if line.dashes else ""
    parts = [f'<polygon points="{band}" fill="{line.colour}" fill-opacity="0.10"/>',
             f'<polyline points="{" ".join(at(x, 0) for x in xs)}" fill="none" stroke="{line.colour}" '
             f'stroke-width="2.4" stroke-linejoin="round"{dashes}/>']
    return parts + [f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(line.points[x][0]):.1f}" r="3.4" fill="#fff" '
                    f'stroke="{line.colour}" stroke-width="2"/>' for x in xs]


def labels(lines, axes):
    """Each line's name at its end."""
    ends = apart({line.label: axes.y(line.points[max(line.points)][0]) for line in lines})
    parts = []
    for line in lines:
        x, y, true = WIDTH - RIGHT + 16, ends[line.label], axes.y(line.points[max(line.points)][0])
        end = axes.x(max(line.points))
        parts.append(f'<path d="M{end + 5:.1f},{true:.1f} L{x - 5},{y:.1f}" stroke="{line.colour}" fill="none" '
                     f'stroke-width="0.8"/>')
        parts.append(text(x, y + 4, line.label, kind="end").replace("<text ", f'<text style="fill:{line.colour}" '))
    return parts


def lines(title, note, series, x_label, y_label, log_y=False, log_x=True, show=number, goal=None):
    """The whole picture. `goal` is (value, words): a broken line that a server is to stay above or below."""
    xs = sorted({x for line in series for x in line.points})
    values = [value for line in series for point in line.points.values() for value in point]
    high = max(values) * (1.6 if log_y else 1.06)
    low = 10 ** math.floor(math.log10(max(min(values), 1e-6))) if log_y else 0.0
    axes = Axes(xs, low, high, log_y, log_x)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img">', f"<title>{title}</title>", f"<style>{STYLE}</style>",
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', text(24, 28, title, kind="title"),
             text(24, 48, note, kind="note")]
    parts += frame(axes, xs, x_label, y_label, show)
    if goal:
        y = axes.y(goal[0])
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#c78a00" '
                     f'stroke-dasharray="2 4" stroke-width="1.4"/>')
    for line in series:
        parts += drawn(line, axes)
    if goal:
        parts.append(text(WIDTH - RIGHT - 30, axes.y(goal[0]) + 16, goal[1], "end", "goal"))
    return "\n".join(parts + labels(series, axes) + ["</svg>", ""])
