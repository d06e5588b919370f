"""Plots as inline SVG: a few kinds, drawn for light and dark, readable without colour and by a screen reader.

Colours are classes (`s0` to `s5`, one a series), which the page's style sheet defines; text and axes take the colour of
the text around them. Series also differ by the dash of their lines and by their order.
"""

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

import msgspec

WIDTH = 900
LABEL = 150  # room for names on the left
_RIGHT = 30  # room for half of the last tick's text
_WORDS = 150  # room for what is written behind bars
_ROW = 16
_TOP = 8
_AXIS = 34  # room for the axis below
_DASHES = ("", "6 3", "2 2", "8 3 2 3", "1 3", "12 3")


class Series(msgspec.Struct, frozen=True):
    """Values of one policy, at the same positions for every series; None where there is none."""

    name: str
    values: Sequence[int | None]


class Range(msgspec.Struct, frozen=True):
    """From `low` over `middle` to `high`, of one policy. `label` is said when it is pointed at."""

    series: int
    low: int
    middle: int
    high: int
    label: str


class Tick(msgspec.Struct, frozen=True):
    """A value that an axis shows, as written there."""

    value: int
    text: str


def lines(title: str, series: Sequence[Series], most: int, ticks: Sequence[Tick], along: Sequence[Tick]) -> str:
    """Values over time, one line a series. `most` is at the top, 0 at the bottom; `along` are positions in time."""
    height = 260
    count = max((len(each.values) for each in series), default=1)

    def x(position: int) -> float:
        return LABEL + position * (WIDTH - LABEL - _RIGHT) / max(1, count - 1)

    def y(value: int) -> float:
        return _TOP + (height - _TOP) * (1 - min(1.0, value / max(1, most)))

    parts = [_horizontal(y(tick.value), tick.text) for tick in ticks]
    parts += [_vertical(x(tick.value), height, tick.text) for tick in along]
    for number, each in enumerate(series):
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in enumerate(each.values) if value is not None)
        dash = _DASHES[number % len(_DASHES)]
        parts.append(
            f'<polyline class="line s{number}" stroke-dasharray="{dash}" points="{points}">'
            f"<title>{escape(each.name)}</title></polyline>"
        )
    return _svg(title, height + _AXIS, parts)


def ranges(title: str, groups: Sequence[tuple[str, Sequence[Range]]], ticks: Sequence[Tick]) -> str:
    """Ranges on a logarithmic axis, one row each, in named groups. What is below the first tick is drawn at it."""
    least, most = ticks[0].value, max(ticks[-1].value, ticks[0].value + 1)
    span = math.log(most) - math.log(least)

    def x(value: int) -> float:
        place = (math.log(min(max(value, least), most)) - math.log(least)) / span
        return LABEL + place * (WIDTH - LABEL - _RIGHT)

    parts: list[str] = []
    top = _TOP
    for name, rows in groups:
        parts.append(_name(top + len(rows) * _ROW / 2, name))
        for row in rows:
            middle = top + _ROW / 2
            low, centre, high = x(row.low), x(row.middle), x(row.high)
            parts.append(
                f'<g class="s{row.series}"><title>{escape(row.label)}</title>'
                f'<line class="span" x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
                f'<line class="end" x1="{high:.1f}" x2="{high:.1f}" y1="{middle - 5:.1f}" y2="{middle + 5:.1f}"/>'
                f'<circle class="hole" cx="{low:.1f}" cy="{middle:.1f}" r="3.5"/>'
                f'<circle class="dot" cx="{centre:.1f}" cy="{middle:.1f}" r="3.5"/></g>'
            )
            top += _ROW
        top += _ROW // 2
    grid = [_vertical(x(tick.value), top, tick.text) for tick in ticks]
    return _svg(title, top + _AXIS, grid + parts)


def bars(title: str, groups: Sequence[tuple[str, Sequence[tuple[int, int, str]]]], ticks: Sequence[Tick]) -> str:
    """Bars from 0, one row each, in named groups: (series, value, label)."""
    most = max(1, ticks[-1].value)
    width = WIDTH - LABEL - _WORDS

    def x(value: int) -> float:
        return LABEL + width * min(1.0, value / most)

    parts: list[str] = []
    top = _TOP
    for name, rows in groups:
        parts.append(_name(top + len(rows) * _ROW / 2, name))
        for series, value, label in rows:
            parts.append(
                f'<rect class="bar s{series}" x="{LABEL}" y="{top + 2}" width="{x(value) - LABEL:.1f}" '
                f'height="{_ROW - 4}"/><text x="{x(value) + 5:.1f}" y="{top + _ROW - 4}">{escape(label)}</text>'
            )
            top += _ROW
        top += _ROW // 2
    grid = [_vertical(x(tick.value), top, tick.text) for tick in ticks]
    return _svg(title, top + _AXIS, grid + parts)


def legend(names: Sequence[str]) -> str:
    """Which series is which: colour, dash and name, in order."""
    keys = "".join(
        f'<li><svg class="key" width="30" height="10" viewBox="0 0 30 10" aria-hidden="true">'
        f'<line class="line s{at}" stroke-dasharray="{_DASHES[at % len(_DASHES)]}" x1="0" x2="30" y1="5" y2="5"/></svg>'
        f" {escape(name)}</li>"
        for at, name in enumerate(names)
    )
    return f'<ul class="legend">{keys}</ul>'


def decades(ticks: Sequence[Tick], highest: int) -> list[Tick]:
    """The ticks up to the first one that is not below `highest`; at least two."""
    shown = [ticks[0]]
    for before, tick in pairwise(ticks):
        shown.append(tick)
        if tick.value >= highest and before.value >= ticks[0].value:
            break
    return shown


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _horizontal(y: float, text: str) -> str:
    return (
        f'<line class="grid" x1="{LABEL}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="left" x="{LABEL - 8}" y="{y + 4:.1f}">{escape(text)}</text>'
    )


def _vertical(x: float, bottom: float, text: str) -> str:
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom:.1f}"/>'
        f'<text class="below" x="{x:.1f}" y="{bottom + 16:.1f}">{escape(text)}</text>'
    )


def _name(middle: float, name: str) -> str:
    return f'<text class="left" x="{LABEL - 8}" y="{middle + 4:.1f}">{escape(name)}</text>'
