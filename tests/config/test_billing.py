"""What is in force in an hour, and that money stays exact on its way."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.config import Config, parse
from commonpool.config.billing import rates, unpriced
from commonpool.config.calendar import Calendar
from commonpool.core.ledger import Rates
from commonpool.core.model import UNPRICED, Budget

Edit = Callable[..., str]

S = 1_000_000_000
HOUR = 3600 * S
BERLIN = Calendar("Europe/Berlin")
DECEMBER, _ = BERLIN.month("2026-12")
PRICED = """currency: EUR, time_zone: Europe/Berlin,
 gpu_hour: {main: [{price: 3, from: 2026-11-01}, {price: 2.8, from: 2026-12-01}]},
 lending: {main: {rate: 80%, hours: {20-6: 50%}}},
 meters: {request: 0.01, network_gb: [{price: 0.02, from: 2026-12-01}]}}"""


@pytest.fixture
def priced(edit: Edit) -> Config:
    return parse(edit("currency: EUR, gpu_hour: {main: 2.50}}", PRICED))


def test_a_plain_price_has_held_since_ever(edit: Edit) -> None:
    assert rates(parse(edit()), "main", 0) == Rates(2_500_000, 2_500_000, {})


def test_a_price_holds_from_local_midnight_on(priced: Config) -> None:
    last = rates(priced, "main", DECEMBER - HOUR)
    first = rates(priced, "main", DECEMBER)
    assert (last.micro_per_gpu_hour, first.micro_per_gpu_hour) == (3_000_000, 2_800_000)
    assert last.meters == {"request": 10_000, "network_gb": UNPRICED}
    assert first.meters == {"request": 10_000, "network_gb": 20_000}


def test_a_loan_has_the_rate_of_the_local_hour(priced: Config) -> None:
    start, _ = BERLIN.day("2026-12-24")
    by_hour = [rates(priced, "main", start + hour * HOUR).lending_micro_per_gpu_hour for hour in range(24)]
    assert by_hour == [1_400_000] * 6 + [2_240_000] * 14 + [1_400_000] * 4


def test_before_the_first_price_there_is_none(priced: Config) -> None:
    november, _ = BERLIN.month("2026-11")
    assert rates(priced, "main", november).micro_per_gpu_hour == 3_000_000
    none = rates(priced, "main", november - HOUR)
    assert (none.micro_per_gpu_hour, none.lending_micro_per_gpu_hour) == (UNPRICED, UNPRICED)


def test_a_price_that_is_missing_in_the_running_hour_is_worth_a_word(priced: Config) -> None:
    assert unpriced(priced, DECEMBER) == ()
    (meter,) = unpriced(priced, DECEMBER - 1)
    assert meter == (
        "prices.meters.network_gb has no price now, its first holds from 2026-12-01 on: the books stop with this hour"
        " until one is added that holds from now on, or earlier."
    )
    pool, _ = unpriced(priced, BERLIN.month("2026-11")[0] - 1)
    assert pool.startswith("prices.gpu_hour.main has no price now, its first holds from 2026-11-01 on: ")


def test_a_pool_that_is_not_there_any_more_has_no_price(priced: Config) -> None:
    assert rates(priced, "gone", DECEMBER).micro_per_gpu_hour == UNPRICED


@given(st.integers(0, 10**14 - 1))
def test_money_is_exact(tenth: int) -> None:
    micro = 10 * tenth
    text = f"{micro // 10**6}.{tenth % 10**5:05}"
    lines = [
        "pools: {main: {gpus: 1}}",
        "models: {m: {version: 1, gpu: 1, slots: 1, context: 9, engine: {kind: embedded, file: x}}}",
        f"prices: {{currency: EUR, gpu_hour: {{main: {text}}}, meters: {{request: {text}}}}}",
        f"costs: [{{name: room, layer: operation, split: uniform, month: {text}}}]",
        f"tenants: {{a: {{budget: {{month: {text}1}}}}}}",
    ]
    config = parse("\n".join(lines))
    assert config.policy.prices["main"].micro_per_gpu_hour == micro
    assert config.billing.meters["request"] == ((0, micro),)
    assert config.billing.costs[0].micro_per_month == micro
    assert config.policy.tenants["a"].budget == Budget(micro + 1, 80)
