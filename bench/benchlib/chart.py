"""The bar chart of CPU time per request: SVG, one group of bars for each cell, a thin line for the rounds' range."""

from xml.sax.saxutils import escape

from .report import LABELS

COLOURS = {"ours": "#1f4e9c", "nginx": "#4a9a5b", "h2o": "#d98032", "bare": "#8a8f98"}
WIDTH, LEFT, RIGHT, TOP = 760, 190, 70, 64
BAR, GAP, GROUP = 14, 3, 16
STYLE = "text{font:12px system-ui,sans-serif;fill:#222}.title{font-size:15px;font-weight:600}.value{font-size:11px}"


def nice(limit):
    """A round step that divides the axis into four to eight parts."""
    for power in range(-2, 6):
        for factor in (1, 2, 5):
            step = factor * 10.0 ** power
            if limit / step <= 8:
                return step
    return limit


def text(x, y, words, anchor="start", kind=""):
    extra = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def legend(names):
    parts, x = [], LEFT
    for name in names:
        parts.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{COLOURS[name]}"/>')
        parts.append(text(x + 17, 47, LABELS[name]))
        x += 40 + 8 * len(LABELS[name])
    return parts


def axis(limit, scale, bottom):
    parts, step = [], nice(limit)
    for index in range(int(limit / step) + 1):
        x = LEFT + index * step * scale
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#e2e4e8"/>')
        parts.append(text(x, bottom + 16, f"{index * step:g}", "middle", "value"))
    return parts


def bar(name, one, y, scale):
    low, high = (LEFT + value * scale for value in one["cpu_us_range"])
    width, middle = one["cpu_us"] * scale, y + BAR / 2
    return [f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[name]}"/>',
            f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke="#111"/>',
            text(max(high, LEFT + width) + 6, y + BAR - 3, f"{one['cpu_us']:.1f}", kind="value")]


def svg(summary, cells):
    """The whole picture."""
    names = list(dict.fromkeys(name for cell in cells for name in summary[cell.name]["servers"]))
    limit = max(one["cpu_us_range"][1] for cell in summary.values() for one in cell["servers"].values())
    scale = (WIDTH - LEFT - RIGHT) / limit
    bars, y = [], TOP + 8
    for cell in cells:
        servers = summary[cell.name]["servers"]
        height = len(servers) * (BAR + GAP)
        bars.append(text(LEFT - 10, y + height / 2 + 3, cell.title, "end"))
        for name, one in servers.items():
            bars += bar(name, one, y, scale)
            y += BAR + GAP
        y += GROUP
    bottom = y - GROUP + 8
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 28}" '
             f'viewBox="0 0 {WIDTH} {bottom + 28}">', f"<style>{STYLE}</style>",
             f'<rect width="{WIDTH}" height="{bottom + 28}" fill="#fff"/>',
             text(16, 24, "CPU µs per request, all processes of a server (less is better)", kind="title")]
    return "\n".join(parts + legend(names) + axis(limit, scale, bottom) + bars + ["</svg>", ""])
