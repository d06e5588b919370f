"""What people read: tables on standard output, progress on standard error. Imported where it is used, since rich costs
170 ms that `--json` and errors can do without.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Final, NamedTuple

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from commonpool.api import text as words

WIDE = 1000  # a pipe or a file has no width, so nothing is folded there
NOTHING = frozenset({"", "0", words.NONE})

Progress = Callable[[int, int], None]
"""Called now and then with how much is done, and of how much."""


class Column(msgspec.Struct, frozen=True):
    """A column; numbers stand to the right. One that is `whole` never takes several lines: an id, to be copied."""

    title: str
    right: bool = True
    whole: bool = False


def console(file: IO[str] | None = None, wide: int = WIDE) -> Console:
    """Standard output as rich sees it, without guesses about what the text means; `wide` where it has no width."""
    file = file or sys.stdout
    width = None if file.isatty() or "COLUMNS" in os.environ else wide
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def table(
    out: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], total: Sequence[str] | None = None
) -> RenderableType:
    """A table, the total below a line.

    Where the terminal is too narrow for it, it moves together: one space between columns, then titles of two words on
    two lines, then texts on several. Where even that is too wide it is one block a row.
    """
    for form in FORMS:
        grid = _grid(columns, rows, total, form)
        if _width(out, grid) <= out.width:
            return grid
    folds = _foldable(columns, rows)
    grid = _grid(columns, rows, total, FORMS[-1])
    fixed = _width(out, grid) - sum(folds.values())
    if folds and out.width - fixed >= len(folds) * TEXT_MIN:
        for at in folds:
            grid.columns[at].no_wrap, grid.columns[at].overflow = False, "fold"
            grid.columns[at].width = min(folds[at], (out.width - fixed) // len(folds))
        return grid
    every = [*rows, *([total] if total is not None else [])]
    return Group(*(_block(columns, row) for row in every))


class Form(NamedTuple):
    """How close a table is: spaces beside each cell, and titles on several lines."""

    space: int
    stacked: bool = False


FORMS: Final = (Form(1), Form(0), Form(0, stacked=True))
TEXT_MIN: Final = 12  # a column of texts narrower than this is no help


def _width(out: Console, grid: Table) -> int:
    return Measurement.get(out, out.options.update(max_width=WIDE), grid).maximum


def _foldable(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> dict[int, int]:
    """The columns of texts that may take several lines, and how wide each is on one."""
    longest = {at: max((len(row[at]) for row in rows), default=0) for at in range(len(columns))}
    return {
        at: longest[at]
        for at, column in enumerate(columns)
        if not column.right and not column.whole and longest[at] > TEXT_MIN
    }


def _grid(columns: Sequence[Column], rows: Sequence[Sequence[str]], total: Sequence[str] | None, form: Form) -> Table:
    grid = Table(
        box=box.SIMPLE_HEAD, padding=(0, form.space), pad_edge=False, show_edge=False, header_style="bold cyan"
    )
    for column in columns:
        title = column.title.replace(" ", "\n") if form.stacked else column.title
        grid.add_column(title, justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*map(_cell, row))
    if total is not None:
        grid.add_section()
        grid.add_row(*map(clean, total), style="bold")
    return grid


def _cell(cell: str) -> Text:
    """What is nothing stands back."""
    text = clean(cell)
    if cell in NOTHING:
        text.stylize("dim")
    return text


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


@contextlib.contextmanager
def bars() -> Iterator[Callable[[str], Progress]]:
    """Makes a bar for each thing that goes on, by its name, on standard error; nothing is said where nobody watches."""
    if not sys.stderr.isatty():
        yield lambda _: _unseen
        return
    with Bars(console=Console(stderr=True), transient=True) as shown:

        def bar(name: str) -> Progress:
            task = shown.add_task(clean(name).plain, total=None)
            return lambda done, total: shown.update(task, completed=done, total=total)

        yield bar


def _unseen(_: int, __: int) -> None:
    """Nobody watches."""


def warning(said: str) -> Text:
    """A line that asks for attention."""
    return Text(clean(said).plain, style="yellow")
