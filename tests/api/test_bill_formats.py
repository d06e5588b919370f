"""Given a bill, when it is written for other programs or a browser, then nothing is lost and nothing is obeyed."""

import csv
import io
from decimal import Decimal
from html.parser import HTMLParser

import msgspec

from commonpool.api.bill_formats import csv_text, decimal, html_text, measured, name, plain
from commonpool.api.wire import bill as wire
from commonpool.core.billing import UnitCosts

AMOUNT = wire.Amount(Decimal("3600.000000000001"), 2_500_000)
LINE = wire.BillLine(
    group=("support", "<b>CC&1</b>"),
    requests=2,
    completed=1,
    attempts=3,
    tokens_in=1000,
    tokens_cached=10,
    tokens_out=500,
    guaranteed=AMOUNT,
    used=AMOUNT,
    borrowed=wire.Amount(Decimal(0), 0),
    lent=wire.Amount(Decimal(0), 0),
    layers={"runtime": 2_000_000, "request": 500_000, "operation": 7},
    charges=(
        wire.Charge("used", "gpu_hour", "runtime", 2_500_000, Decimal("3600.000000000001"), "gpu_seconds"),
        wire.Charge("earned", "gpu_hour", "runtime", -500_000, Decimal(720), "gpu_seconds"),
        wire.Charge("fee", "network_gb", "request", 500_000, Decimal(1_234_567), "bytes"),
        wire.Charge("shared", "=team", "operation", 7, split="uniform"),
    ),
    unit_costs=UnitCosts(2_000_000, 0, 0, 0, 500_000, 7, 1_666_671_333),
    total_micro=2_500_007,
)
BILL = wire.BillTable(
    period="2026-11",
    start_ns=0,
    end_ns=86_400 * 10**9,
    until_ns=3600 * 10**9,
    time_zone="Europe/Berlin",
    currency="EUR",
    closed=False,
    by=("tenant", "cost_center"),
    lines=(LINE,),
    total=msgspec.structs.replace(LINE, group=()),
    forecast_micro=60_000_168,
    notes=("Books & more.",),
)


def test_csv_has_every_charge_with_all_its_digits() -> None:
    (row,) = csv.DictReader(io.StringIO(csv_text(BILL)))
    assert row["used_gpu_seconds"] == "3600.000000000001"
    assert [row[name] for name in ("used", "earned", "fee network_gb", "shared =team")] == [
        "2.500000", "-0.500000", "0.500000", "0.000007",
    ]  # fmt: skip
    assert sum(Decimal(row[f"{layer}_cost"]) for layer in ("infrastructure", "runtime", "request", "operation")) == (
        Decimal(row["total"])
    )
    assert (row["period"], row["tenant"], row["currency"]) == ("2026-11", "support", "EUR")


def test_no_cell_is_a_formula() -> None:
    assert [plain(cell) for cell in ("=1+1", "+1", "-1", "@x", "a=1", "")] == ["'=1+1", "'+1", "'-1", "'@x", "a=1", ""]


def test_a_bill_without_lines_has_its_total() -> None:
    (row,) = csv.DictReader(io.StringIO(csv_text(msgspec.structs.replace(BILL, by=(), lines=()))))
    assert row["total"] == "2.500007"


class Page(HTMLParser):
    """What a browser would load, run and show."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.shown = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for key, value in attrs if key in {"src", "href", "style", "onclick"}]

    def handle_data(self, data: str) -> None:
        self.shown += data


def test_html_is_one_page_that_loads_and_obeys_nothing() -> None:
    page = Page(html_text(BILL))
    assert page.links == []
    assert {"script", "link", "img", "b"}.isdisjoint(page.tags)
    assert "<b>CC&1</b>" in page.shown
    assert "Books & more." in page.shown
    assert page.shown.count("2.500007 EUR") == 2  # a result of the line, and of all
    assert "60.000168" in page.shown
    assert page.tags.count("table") == 3


def test_html_of_a_closed_bill() -> None:
    page = Page(html_text(msgspec.structs.replace(BILL, closed=True, forecast_micro=None, notes=())))
    assert "Closed." in page.shown
    assert "Expected" not in page.shown


def test_quantities_as_people_read_them() -> None:
    used, _, fee, shared = LINE.charges
    assert measured(used) == ("1.000", "GPU hours")
    assert measured(fee) == ("1,234,567", "bytes")
    assert measured(shared) == ("", "")
    assert [name(charge) for charge in (used, fee, shared)] == ["used within the guarantee", "network_gb", "=team"]
    assert decimal(-1_234_000_001) == "-1234.000001"
