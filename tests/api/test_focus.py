"""Given a bill, when it is written as FOCUS, then the specification's own validator finds nothing wrong with it."""

import asyncio
import csv
import io
import json
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

from commonpool.access.callers import LOCAL
from commonpool.access.scope import EVERYTHING
from commonpool.api import bill, focus
from commonpool.api.subjects import Who
from commonpool.api.wire import bill as wire
from commonpool.core.ledger import Standing
from commonpool.core.model import Outcome
from tests.api.books import GUARANTEED, HOUR, at, billed, close, keep, work
from tests.api.fakes import FakeOperations

VALIDATOR = Path(__file__).parents[2] / ".venv-tools" / "focus" / "bin" / "focus-validator"
# What we do is what these are about; what is left out is regions, reserved capacity, commitments, other currencies.
CRITERIA = (
    "ACCOUNT_NAMING", "MULTIPLE_PRICING_CATEGORIES", "MULTIPLE_SUB_ACCOUNT_TYPES", "MULTIPLE_BILLING_ACCOUNT_TYPES",
    "NEGOTIATED_PRICING", "PUBLIC_PRICE_LIST", "USAGE_MEASUREMENT", "UNIT_PRICING", "SUB_ACCOUNT",
    "BILLING_BASED_ON_PROVISIONED_RESOURCES", "RESOURCE_TYPE_ASSIGNMENT", "TAGGING",
)  # fmt: skip
# An alternative: a row has an invoice or it has none. The rule that asks for one of the two holds.
ALTERNATIVES = {"InvoiceId-C-004-C"}


@pytest.fixture(scope="module")
def table() -> wire.BillTable:
    """Three days around the turn of a year with everything in them that a bill can have."""
    product = billed()
    keep(
        product,
        "2026-12-30 00:00",
        "2026-12-31 23:00",
        [
            work("r1", "2026-12-30 10:40", HOUR // 3, loan=1000),
            work("r2", "2026-12-31 11:00", HOUR // 7, tenant="research", app="papers", cost_center="=x", milli_gpu=500),
            work("r3", "2026-12-31 12:00", HOUR // 9, outcome=Outcome.FAILED),
        ],
    )
    # It is heard of late, so what it used is charged, and its idle time given back, two days after.
    product.store.add_usage([work("late", "2026-12-30 20:00", HOUR, endpoint="job", stream=False)])
    hours = range(at("2026-12-31 23:00"), at("2027-01-02 00:00"), HOUR)
    product.store.add_meters([Standing("main", hour, hour + HOUR, 4000, GUARANTEED) for hour in hours])
    close(product, at("2027-01-02 00:00"))
    return ask(product)


def ask(product: FakeOperations) -> wire.BillTable:
    query = bill.BillQuery(period="2026-12-30..2027-01", by=",".join(focus.BY))
    return asyncio.run(bill.bill(product, query, Who(LOCAL, EVERYTHING)))


@pytest.fixture(scope="module")
def rows(table: wire.BillTable) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(focus.csv_text(table))))


def test_the_validator_finds_nothing(table: wire.BillTable, tmp_path: Path) -> None:
    if not VALIDATOR.exists():
        pytest.skip("focus-validator is not here; `make focus` sets it up (it needs Python 3.12)")
    file = tmp_path / "bill.csv"
    file.write_text(focus.csv_text(table), "utf-8", newline="")
    (package,) = VALIDATOR.parents[1].glob("lib/python3*/site-packages")  # it looks for its lists where it is started
    criteria = ",".join(f"{name}_SUPPORTED" for name in CRITERIA)
    done = subprocess.run(
        [
            VALIDATOR,
            "--data-file",
            file,
            "--validate-version",
            "1.2",
            "--block-download",
            "--applicability-criteria",
            criteria,
        ],
        cwd=package,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    failed = {line[2:].partition(":")[0] for line in done.stdout.splitlines() if line.startswith("- ")}
    assert "Total: 578" in done.stdout, done.stderr
    assert failed == ALTERNATIVES, done.stdout


def test_rows_sum_to_the_bill(table: wire.BillTable, rows: list[dict[str, str]]) -> None:
    for column in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"):
        assert sum(Decimal(row[column]) for row in rows) == Decimal(table.total.total_micro) / 10**6


def test_allocated_rows_sum_to_their_cost(table: wire.BillTable, rows: list[dict[str, str]]) -> None:
    shared = {each.name: (each.cost_micro, each.split) for each in table.total.charges if each.kind == "shared"}
    assert set(shared) == {"machine room", "platform team"}
    for name, (micro, split) in shared.items():
        parts = [row for row in rows if row["x_AllocatedResourceId"] == name]
        assert {row["x_AllocatedMethodId"] for row in parts} == {split}
        assert sum(Decimal(row["BilledCost"]) for row in parts) == Decimal(micro) / 10**6


def test_lending_is_a_credit_and_what_is_late_an_adjustment(rows: list[dict[str, str]]) -> None:
    earned = [row for row in rows if row["ChargeCategory"] == "Credit"]
    assert {(row["SubAccountId"], row["x_ChargeKind"]) for row in earned} == {("research", "earned")}
    assert all(Decimal(row["BilledCost"]) < 0 for row in earned)
    late = [row for row in rows if row["ChargeCategory"] == "Adjustment"]
    assert {row["x_ChargeKind"] for row in late} == {"used", "idle", "fee"}
    assert sum(Decimal(row["BilledCost"]) for row in late if row["x_ChargeKind"] != "fee") == 0
    assert {row["ChargePeriodStart"] for row in late} == {"2026-12-30T23:00:00Z"}


def test_days_are_the_billing_time_zones_in_utc(rows: list[dict[str, str]]) -> None:
    first = min(rows, key=lambda row: row["ChargePeriodStart"])
    assert (first["ChargePeriodStart"], first["ChargePeriodEnd"]) == ("2026-12-29T23:00:00Z", "2026-12-30T23:00:00Z")
    assert (first["BillingPeriodStart"], first["BillingPeriodEnd"]) == ("2026-11-30T23:00:00Z", "2026-12-31T23:00:00Z")


def test_tags_and_resources(rows: list[dict[str, str]]) -> None:
    used = next(row for row in rows if row["x_ChargeKind"] == "used" and row["SubAccountId"] == "research")
    assert json.loads(used["Tags"]) == {
        "app": "papers", "cost_center": "=x", "model": "echo", "version": "v1", "type": "stream",
        "tier": "interactive", "endpoint": "chat",
    }  # fmt: skip
    assert (used["ResourceId"], used["ResourceType"], used["x_Group"]) == ("echo", "Model", "science")
    assert Decimal(used["PricingQuantity"]) * 3600 == pytest.approx(Decimal(3600) / 14)
