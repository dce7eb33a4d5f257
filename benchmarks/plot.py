"""Draws curves as SVG without a library: both axes are logarithmic, each series is one line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 380, 70, 50, 40, 150
COLOURS = ("#1f6feb", "#d1242f", "#2da44e", "#8250df", "#bf8700", "#57606a")

Points = Sequence[tuple[float, float]]


class Axis:
    """A logarithmic axis, with the whole decades that hold all values."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(values))))
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        """The position of a value, in pixels."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def decades(self) -> list[float]:
        """The values that get a grid line."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def text(x: float, y: float, words: str, anchor: str = "middle", extra: str = "") -> str:
    """The SVG of a label."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{words}</text>'


def number(value: float) -> str:
    """A number as text: `100,000`, `0.1`."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def curves(title: str, across: str, up: str, series: Mapping[str, Points]) -> str:
    """The picture as SVG. Points with a coordinate of 0 or less are left out, because a logarithmic
    axis has no place for them."""
    shown = {name: [p for p in points if min(p) > 0] for name, points in series.items()}
    shown = {name: points for name, points in shown.items() if points}
    every = [point for points in shown.values() for point in points]
    x = Axis([p[0] for p in every], LEFT, WIDTH - RIGHT)
    y = Axis([p[1] for p in every], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(LEFT, 22, title, "start", 'font-size="15" font-weight="bold"'),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, across),
        text(16, HEIGHT / 2, up, extra=f'transform="rotate(-90 16 {HEIGHT / 2})"'),
    ]
    for value in x.decades():
        at = x.at(value)
        parts.append(f'<path d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(text(at, HEIGHT - BOTTOM + 16, number(value)))
    for value in y.decades():
        at = y.at(value)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, at + 4, number(value), "end"))
    for place, (name, points) in enumerate(shown.items()):
        colour = COLOURS[place % len(COLOURS)]
        line = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="3" fill="{colour}"/>'
            for a, b in points
        ]
        parts.append(text(WIDTH - RIGHT + 10, TOP + 14 + 18 * place, name, "start",
                          f'fill="{colour}"'))
    return "\n".join([*parts, "</svg>"]) + "\n"


def write(path: Path, title: str, across: str, up: str, series: Mapping[str, Points]) -> None:
    """Write the picture to a file."""
    path.write_text(curves(title, across, up, series))
