"""Given a table, when the terminal is narrow, then it moves together, and becomes blocks only where that is no help."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from commonpool.cli import show
from tests.api.fakes import MODEL, FakeOperations
from tests.cli.serving import serving
from tests.cli.terminal import Terminal

COLUMNS = [show.Column("tenant", right=False), *map(show.Column, ("elastic cap", "in use", "wait p99"))]
ROWS: list[tuple[str, ...]] = [("support", "4", "0", "12.00 s"), ("a-tenant-of-a-long-name", "4", "2.5", "–")]


def drawn(width: int, rows: list[tuple[str, ...]] = ROWS, columns: list[show.Column] = COLUMNS) -> list[str]:
    out = Console(file=io.StringIO(), width=width)
    out.print(show.table(out, columns, rows))
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def test_a_whole_column_is_on_one_line_beside_a_long_note() -> None:
    columns = [show.Column("id", right=False, whole=True), show.Column("note", right=False)]
    lines = drawn(50, [("k123456789abcdefghij", "word " * 40)], columns)
    assert max(map(len, lines)) <= 50
    assert any(line.split()[0] == "k123456789abcdefghij" for line in lines if line.split())


def test_with_room_titles_are_on_one_line() -> None:
    assert drawn(80)[0].split() == ["tenant", "elastic", "cap", "in", "use", "wait", "p99"]
    assert "elastic cap" in drawn(80)[0]


@pytest.mark.parametrize("width", [52, 50, 45, 42])
def test_narrower_it_is_still_a_table_with_every_value(width: int) -> None:
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    assert any(line.split()[-4:] == ["4", "0", "12.00", "s"] for line in lines)
    assert not any("…" in line for line in lines)


def test_long_texts_take_several_lines() -> None:
    lines = drawn(34)
    assert max(map(len, lines)) <= 34
    assert any(line.startswith("support ") for line in lines)
    assert "a-tenant-of-a-long-name" not in "".join(line.split()[0] for line in lines[:4])


def test_at_last_it_is_a_block_a_row() -> None:
    lines = drawn(24)
    assert ["tenant", "support"] in [line.split() for line in lines]
    assert ["wait", "p99", "12.00", "s"] in [line.split() for line in lines]


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}])
def test_status_in_a_terminal_is_a_table_in_colours_where_those_are_wanted(tmp_path: Path, env: dict[str, str]) -> None:
    product = FakeOperations()
    product.models_now = (MODEL,)
    product.warnings = ("the disk is full",)
    with serving(product) as url:
        terminal = Terminal("status", "--control", url, folder=tmp_path, env=env)
        assert terminal.ends() == 0
        terminal.close()
    lines = terminal.text.replace("\r", "").splitlines()
    assert any(line.split()[:5] == ["support", "2", "0.5", "1.5", "0"] for line in lines)
    assert max(map(len, lines)) <= 80
    assert ("\x1b[33mwarning" in terminal.raw) is not bool(env)
