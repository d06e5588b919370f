"""What people read: tables on standard output, progress on standard error. Imported where it is used, since rich costs
170 ms that `--json` and errors can do without.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

WIDE = 1000  # a pipe or a file has no width, so nothing is folded there


class Column(msgspec.Struct, frozen=True):
    """A column; numbers stand to the right."""

    title: str
    right: bool = True


def console(file: IO[str] | None = None) -> Console:
    """Standard output as rich sees it, without guesses about what the text means."""
    file = file or sys.stdout
    width = None if file.isatty() or "COLUMNS" in os.environ else WIDE
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def table(
    out: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], total: Sequence[str] | None = None
) -> RenderableType:
    """A table, the total below a line; where the terminal is too narrow for it, one block a row."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*map(clean, row))
    if total is not None:
        grid.add_section()
        grid.add_row(*map(clean, total), style="bold")
    if Measurement.get(out, out.options.update(max_width=WIDE), grid).maximum <= out.width:
        return grid
    every = [*rows, *([total] if total is not None else [])]
    return Group(*(_block(columns, row) for row in every))


def matrix(
    out: Console, cells: Mapping[tuple[str, str], int], total: str, written: Callable[[int], str]
) -> RenderableType:
    """Lenders down, borrowers across, sums at the ends; `total` is their title. Zero is left blank."""
    lenders = sorted({lender for lender, _ in cells})
    borrowers = sorted({borrower for _, borrower in cells})

    def line(title: str, of: list[str]) -> tuple[str, ...]:
        sums = [sum(cells.get((lender, borrower), 0) for lender in of) for borrower in borrowers]
        return (title, *(written(value) if value else "" for value in sums), written(sum(sums)))

    columns = [Column("lender \\ borrower", right=False), *map(Column, [*borrowers, total])]
    return table(out, columns, [line(lender, [lender]) for lender in lenders], line(total, lenders))


def _block(columns: Sequence[Column], row: Sequence[str]) -> RenderableType:
    block = Table.grid(padding=(0, 2))
    for column, cell in zip(columns, row, strict=True):
        if cell:
            block.add_row(Text(column.title, style="dim"), clean(cell))
    return Group(block, Text())


def clean(cell: str) -> Text:
    """The cell without anything that a terminal would obey."""
    return Text("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in cell))


@contextlib.contextmanager
def progress(message: str) -> Iterator[None]:
    """Says on standard error that something goes on, while it does; nothing where nobody watches."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(clean(message)):
        yield
