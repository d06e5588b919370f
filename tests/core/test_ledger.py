"""The vocabulary of the ledger: hours, accounts, and what a posting costs."""

import pytest

from commonpool.core.ledger import METERS, PLATFORM, Kind, Posting, hour_of, lender_account
from commonpool.core.pricing import COST_UNIT
from tests.core.ledgers import H


@pytest.mark.parametrize(
    ("ns", "offset", "start"),
    [(0, 0, 0), (H - 1, 0, 0), (H, 0, H), (-1, 0, -H), (H, H // 2, H // 2), (H // 2 - 1, H // 2, -H // 2)],
)
def test_an_hour_begins_with_its_first_nanosecond(ns: int, offset: int, start: int) -> None:
    assert hour_of(ns, offset) == start


def test_a_lender_is_a_tenant_a_group_or_the_platform() -> None:
    assert [lender_account(name, {"g"}) for name in ("a", "g", "")] == ["tenant:a", "group:g", PLATFORM]


@pytest.mark.parametrize("meter", METERS)
def test_one_priced_unit_costs_its_price_exactly(meter: str) -> None:
    posting = Posting(0, 0, "main", Kind.FEE, "tenant:a", PLATFORM, METERS[meter], 7, meter)
    assert posting.exact_cost == 7 * COST_UNIT
    assert COST_UNIT % METERS[meter] == 0
