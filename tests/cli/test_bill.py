"""Given books, when a bill is printed, then every format has the same figures and people can read it."""

import csv
import io
import re
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from commonpool.api import text
from commonpool.api.wire import bill as wire
from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from tests.api.books import HOUR, billed, keep, work
from tests.api.fakes import FakeOperations
from tests.cli.serving import serving

PERIOD = ["--period", "2026-12-30..2027-01"]


@pytest.fixture
def product() -> FakeOperations:
    product = billed()
    third = HOUR // 3
    keep(
        product,
        "2026-12-30 00:00",
        "2027-01-02 00:00",
        [
            work("r1", "2026-12-30 10:40", third, loan=1000),
            work("r2", "2026-12-31 11:00", third, tenant="research", app="papers", cost_center="=1+1", milli_gpu=500),
            work("r3", "2027-01-01 01:00", 2 * HOUR, endpoint="job", stream=False),
        ],
    )
    return product


@pytest.fixture
def said(product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> "Said":
    return Said(product, capsys)


class Said:
    """What commands print, asked of this product."""

    def __init__(self, product: FakeOperations, capsys: pytest.CaptureFixture[str]) -> None:
        self._product = product
        self._capsys = capsys

    def __call__(self, *arguments: str, ends: ExitCode = ExitCode.OK) -> str:
        with serving(self._product) as url:
            assert run([*arguments, "--control", url]) == ends
        read = self._capsys.readouterr()
        return read.out if ends is ExitCode.OK else read.err

    def total(self, *arguments: str) -> int:
        found = self("bill", *PERIOD, *arguments, "--format", "json")
        return msgspec.json.decode(found, type=wire.BillTable).total.total_micro


def cells(out: str) -> list[list[str]]:
    """The cells of a table: what is parted by two spaces or more."""
    return [re.split(r"\s{2,}", line.strip()) for line in out.splitlines() if line.strip()]


def table_of(out: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(out)))


@pytest.mark.parametrize("by", ["tenant", "tenant,app,day", "group,model,type"])
def test_every_format_has_the_same_total(said: Said, by: str) -> None:
    total = said.total()
    shown = text.money(total)
    assert said.total("--by", by) == total
    table = said("bill", *PERIOD, "--by", by)
    assert [row[-1] for row in cells(table) if row[0] == "total"] == [shown, shown]
    written = table_of(said("bill", *PERIOD, "--by", by, "--format", "csv"))
    assert sum(Decimal(row["total"]) for row in written) == Decimal(total) / 10**6
    assert shown in said("bill", *PERIOD, "--by", by, "--format", "html")
    focus = table_of(said("bill", *PERIOD, "--format", "focus"))
    assert sum(Decimal(row["BilledCost"]) for row in focus) == Decimal(total) / 10**6


def test_a_table_for_people(said: Said) -> None:
    out = said("bill", *PERIOD)
    assert max(map(len, out.splitlines())) <= 100
    first, head, _, *rows = cells(out)
    assert first == ["bill of 2026-12-30..2027-01 in EUR, open: in the books until 2027-01-02 00:00 Europe/Berlin"]
    assert head == ["tenant", "requests", "guaranteed h", "used h", "borrowed h", "lent h", "EUR"]
    assert [row[0] for row in rows[:4]] == ["platform", "research", "support", "total"]
    for column in range(1, 7):
        numbers = [Decimal(row[column].replace(",", "")) for row in rows[:4]]
        assert sum(numbers[:3]) == numbers[3]
    assert rows[2][1:6] == ["2", "144.000", "4.666", "0.333", "0.000"]
    made_of = {row[0]: row[1:] for row in rows[4:]}
    assert made_of["borrowed"] == ["runtime", "0.333", "GPU hours", "0.666667"]
    assert made_of["earned by lending"] == ["runtime", "0.333", "GPU hours", "-0.666667"]
    assert out.splitlines()[-1] == (
        "a line's records: commonpool bill --records --period 2026-12-30..2027-01 --where tenant=…"
    )


def test_the_month_that_goes_on_has_a_forecast(said: Said) -> None:
    assert "expected at its end (2027-02-01 00:00 Europe/Berlin): " in said("bill")
    assert "expected" not in said("bill", "--period", "2026-12")


def test_nothing_in_the_books(capsys: pytest.CaptureFixture[str]) -> None:
    out = Said(billed(), capsys)("bill")
    assert out.startswith("bill of 2027-01 in EUR, open: no hour of it is in the books yet\n")
    assert out.splitlines()[-1] == (
        "A bill is made of whole hours, and the first one of this period is in it soon after 2027-01-02 01:00"
        " Europe/Berlin."
    )
    assert "expected" not in out


def test_a_closed_month_says_so(said: Said) -> None:
    said("period", "close", "2026-12")
    assert said("bill", "--period", "2026-12").startswith("bill of 2026-12 in EUR, closed\n")


def test_a_tenant_alone(said: Said) -> None:
    only = said("bill", *PERIOD, "--tenant", "support", "--format", "json")
    (line,) = msgspec.json.decode(only, type=wire.BillTable).lines
    assert line.group == ("support",)
    assert said("bill", *PERIOD, "--where", "tenant=support", "--format", "json") == only


def test_a_tenant_that_nobody_knows(said: Said) -> None:
    for which in (["--tenant", "nobody"], ["--where", "tenant=nobody", "--records"]):
        assert said("bill", *PERIOD, *which, ends=ExitCode.USAGE) == (
            "commonpool: neither the configuration nor the books of 2026-12-30..2027-01 know the tenant 'nobody';"
            " `commonpool bill` shows who pays\n"
        )


def test_matrix(said: Said) -> None:
    rows = cells(said("bill", *PERIOD, "--matrix"))
    assert rows[0] == ["lender \\ borrower", "support", "total gpu h"]
    assert ["research", "0.333", "0.333"] in rows
    assert ["research", "0.666667", "0.666667"] in rows
    assert "nobody lent to anybody" in said("bill", "--period", "2026-12-31", "--matrix")
    lent = said("bill", *PERIOD, "--matrix", "--format", "json")
    assert msgspec.json.decode(lent, type=wire.LendingTable).pairs[0].cost_micro == 666_667


def test_records_lead_to_the_line(said: Said) -> None:
    out = said("bill", "--records", "--period", "2026-12-30", "--tenant", "support")
    found = [msgspec.json.decode(line, type=wire.AttemptPostings) for line in out.splitlines()]
    charges = said("bill", "--period", "2026-12-30", "--where", "app=helpdesk", "--format", "json")
    line = msgspec.json.decode(charges, type=wire.BillTable).total
    assert [each.attempt.request_id for each in found] == ["r1"]
    assert sum(each.cost_micro for each in found) == line.total_micro


def test_a_file(said: Said, tmp_path: Path) -> None:
    out = tmp_path / "bill.csv"
    assert said("bill", *PERIOD, "--format", "csv", "--out", str(out)) == ""
    assert out.read_bytes().decode() == said("bill", *PERIOD, "--format", "csv")
    assert "cannot be written" in said("bill", "--out", str(tmp_path / "no" / "x"), ends=ExitCode.FAILED)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--matrix", "--records"],
        ["--matrix", "--by", "tenant"],
        ["--records", "--format", "html"],
        ["--matrix", "--tenant", "a"],
        ["--format", "focus", "--by", "tenant"],
        ["--format", "pdf"],
        ["--where", "tenant"],
    ],
)
def test_wrong_usage_is_found_before_anything_is_asked(arguments: list[str]) -> None:
    assert run(["bill", *arguments, "--control", "http://127.0.0.1:1"]) == ExitCode.USAGE


def test_wrong_periods_are_wrong_usage(said: Said) -> None:
    assert "2026-11-03" in said("bill", "--period", "November", ends=ExitCode.USAGE)
    assert "'colour'" in said("bill", "--by", "colour", ends=ExitCode.USAGE)
