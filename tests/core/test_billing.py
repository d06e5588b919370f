"""Bills: lines by account and work, shared costs in full, and figures that agree however a period is cut up."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.billing import (
    EARNED,
    Day,
    HourlySum,
    Lent,
    PostingSum,
    SharedCost,
    UnitCosts,
    accrued,
    bill,
    combined,
    forecast,
    matrix,
    share,
    unit_costs,
)
from commonpool.core.closing import close
from commonpool.core.ledger import Counted, Posting, Rates, Use, Work
from commonpool.core.pricing import COST_UNIT, round_half_up
from tests.core.ledgers import H, hour, standing, use

DAY = 24 * H
A, B, C = "tenant:a", "tenant:b", "tenant:c"
RATES = Rates(3_000_000, 2_000_000, {"request": 10, "million_tokens_out": 2_000_000, "network_gb": 0})


def sums(postings: Sequence[Posting], by: Sequence[str] = ()) -> tuple[PostingSum, ...]:
    """As a store would add them up, by ("tenant", *by)."""
    found: Counter[tuple[tuple[str, ...], str, str, str, str, int, str]] = Counter()
    for p in postings:
        keys = tuple(p.pool if name == "pool" else getattr(p.work, name) for name in ("tenant", *by))
        found[keys, p.kind.value, p.debit, p.credit, p.meter, p.micro, p.pool] += p.quantity
    return tuple(PostingSum(*key[:6], quantity, key[6]) for key, quantity in found.items())


def day(number: int, postings: Sequence[Posting], *counts: HourlySum, by: Sequence[str] = ()) -> Day:
    """Of a month of 30 days."""
    return Day(number * DAY, (number + 1) * DAY, 0, 30 * DAY, sums(postings, by), counts)


WORK = Work("a", "app", "", "m")
CLOSED = close(
    hour(
        standing(4000, a=1000, b=2000),
        rates=RATES,
        uses=(Use(WORK, True, 1500 * H, {"b": 800 * H}), Use(WORK, False, 100 * H), use("b", 200 * H)),
        counted=(Counted(WORK, {"request": 3, "million_tokens_out": 500_000, "network_gb": 7}),),
    )
)


def test_lines_show_what_each_was_guaranteed_used_borrowed_and_lent_and_what_it_costs() -> None:
    made = bill([day(0, CLOSED, HourlySum(("a",), requests=4, completed=3, tokens_out=500_000))], ())
    a, b, platform = sorted(made.lines, key=lambda line: (line.account == "platform", line.account))
    assert a.milli_gpu_ns == {"used": 700 * H, "idle": 200 * H, "borrowed": 800 * H}
    assert a.micro == {"used": 2_100_000, "idle": 600_000, "borrowed": 1_600_000}
    assert (a.guaranteed, a.used, a.runtime_micro) == (900 * H, 1500 * H, 4_300_000)
    assert a.metered == {"request": 3, "million_tokens_out": 500_000, "network_gb": 7}
    assert a.fees == {"request": 30, "million_tokens_out": 1_000_000, "network_gb": 0}
    assert (a.counts.requests, a.counts.completed, a.total_micro) == (4, 3, 5_300_030)
    assert b.milli_gpu_ns == {"used": 200 * H, "idle": 1000 * H, "lent": 800 * H, EARNED: 800 * H}
    assert b.micro == {"used": 600_000, "idle": 3_000_000, "lent": 2_400_000, EARNED: -1_600_000}
    assert platform.milli_gpu_ns == {"uncharged": 100 * H, "idle": 1000 * H}
    assert made.total_micro == 4 * 3_000_000 + 1_000_030
    assert made.layers(a) == {"infrastructure": 0, "runtime": 4_300_000, "request": 1_000_030, "operation": 0}


def test_by_model_and_pool_what_is_about_no_work_stands_on_a_line_of_its_own() -> None:
    by = ("model", "pool")
    made = bill([day(0, CLOSED, HourlySum(("a", "m", "main"), completed=3), by=by)], by)
    lines = {(line.account, line.keys): line for line in made.lines}
    assert {key: set(line.micro) for key, line in lines.items()} == {
        (A, ("m", "main")): {"used", "borrowed"},
        (A, ("", "main")): {"idle"},
        (B, ("", "main")): {"used", "idle", "lent", EARNED},
        ("platform", ("m", "main")): {"uncharged"},
        ("platform", ("", "main")): {"idle"},
    }
    assert lines[A, ("m", "main")].fees["request"] == 30
    assert lines[A, ("m", "main")].counts.completed == 3
    assert lines[B, ("", "main")].micro[EARNED] == -1_600_000
    assert sum(line.total_micro for line in made.lines if line.account == A) == 5_300_030


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("uniform", {A: 500, B: 500}),
        ("proportional", {A: 494, B: 506}),  # 4.3 and 4.4 of run time
        ("guaranteed", {A: 310, B: 690}),  # 0.9 and 2 GPU-hours
        ("gpu_hour", {A: 882, B: 118}),  # 1.5 and 0.2
        ("request", {A: 1000}),
        ("cpu_hour", {"platform": 1000}),  # nobody's
    ],
)
def test_a_shared_cost_is_split_as_it_says(split: str, expected: dict[str, int]) -> None:
    made = bill([day(0, CLOSED)], (), [SharedCost("room", "infrastructure", 30_000, split)])
    shared = {line.account: line.shared["room"] for line in made.lines if "room" in line.shared}
    assert shared == expected
    assert sum(made.layers(line)["infrastructure"] for line in made.lines) == 1000


def test_a_shared_cost_of_a_pool_is_of_those_who_have_to_do_with_it() -> None:
    other = close(hour(msgspec.structs.replace(standing(4000, c=4000), pool="h100"), pool="h100"))
    cost = SharedCost("licence", "runtime", 30_000, "uniform", pool="h100")
    made = bill([day(0, (*CLOSED, *other), by=("pool",))], ("pool",), [cost])
    assert {(line.account, line.keys): line.shared for line in made.lines if line.shared} == {
        (C, ("h100",)): {"licence": 1000}
    }


def test_a_shared_cost_counts_from_its_start_until_its_end() -> None:
    cost = SharedCost("desk", "operation", 30_000, "uniform", start_ns=DAY + DAY // 4, until_ns=2 * DAY + DAY // 2)
    made = [
        bill([day(number, CLOSED)], (), [cost]).total_micro - bill([day(number, CLOSED)], ()).total_micro
        for number in range(4)
    ]
    assert made == [0, 750, 500, 0]


@given(st.integers(0, 10**30), st.dictionaries(st.text("ab", max_size=3), st.integers(0, 10**6), max_size=8))
def test_shares_sum_to_the_cost(amount: int, weights: dict[str, int]) -> None:
    shares = share(amount, weights)
    assert sum(shares.values()) == amount
    whole = sum(weights.values())
    assert all(abs(part * whole - amount * weights.get(name, 0)) < whole for name, part in shares.items() if whole)


def test_unit_costs_sum_to_what_a_result_cost() -> None:
    cost = SharedCost("room", "infrastructure", 30_000, "uniform"), SharedCost("desk", "operation", 60_000, "uniform")
    counts = HourlySum(("a",), requests=9, completed=7, tokens_in=1_000_000, tokens_out=500_000)
    made = bill([day(0, CLOSED, counts)], (), cost)
    a, b = made.lines[1:]
    found = unit_costs(made, a)
    assert a.total_micro == 4_300_000 + 1_000_030 + 500 + 1000
    assert found == UnitCosts(
        runtime=614_286, platform=71, storage=0, network=0, fees=142_861, operation=143, million_tokens=3_534_353
    )
    assert found.result == round_half_up(a.total_micro, 7)
    assert unit_costs(made, b) is None


def test_the_matrix_says_who_lent_to_whom() -> None:
    uncharged = close(hour(standing(a=1000, b=3000), uses=(use("a", 5 * H, charged=False, b=5 * H),)))
    assert matrix([day(0, CLOSED), day(1, (*CLOSED, *uncharged))]) == {
        (B, A): Lent(1600 * H, 3_200_000),
        (B, "platform"): Lent(5 * H, 10_000),
    }


def test_a_forecast_goes_on_alike() -> None:
    assert forecast(700, 0, 7, 30) == 3000
    assert forecast(700, 0, 30, 30) == 700
    assert forecast(0, 5, 5, 30) == 0


# -- laws --------------------------------------------------------------------------------------------------------------

works = st.builds(
    Work, st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"]), model=st.sampled_from(["m", "n"])
)
ODD = Rates(3_333_337, 1_111_119, {"request": 3, "million_tokens_out": 7})


@st.composite
def days(draw: st.DrawFn) -> list[list[Posting]]:
    """The postings of some days, of one hour each."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        uses = []
        for work in draw(st.lists(works, max_size=4)):
            quantity = draw(st.integers(0, 1000 * H))
            lender = next(name for name in ("a", "b") if name != work.tenant)
            uses.append(Use(work, draw(st.booleans()), quantity, {lender: draw(st.integers(0, quantity))}))
        counted = [Counted(work, {"request": draw(st.integers(0, 9))}) for work in draw(st.lists(works, max_size=2))]
        known = hour(standing(8000, a=1000, b=1000, group_g=7), rates=ODD, uses=tuple(uses), counted=tuple(counted))
        found.append(list(close(known)))
    return found


costs = st.lists(
    st.builds(
        SharedCost,
        st.sampled_from(["room", "desk", "power"]),
        st.just("operation"),
        st.integers(0, 10**9),
        st.sampled_from(["uniform", "proportional", "guaranteed", "gpu_hour", "request"]),
        st.sampled_from([None, "main", "other"]),
        st.sampled_from([None, DAY // 3, DAY]),
        st.sampled_from([None, DAY, 2 * DAY + 1]),
    ),
    max_size=3,
)


@given(days(), costs, st.sampled_from([(), ("model",), ("app", "model", "pool")]))
def test_the_days_sum_to_the_month(month: list[list[Posting]], shared: list[SharedCost], by: tuple[str, ...]) -> None:
    known = [day(number, postings, by=by) for number, postings in enumerate(month)]
    whole = bill(known, by, shared)
    each = [bill([one], by, shared) for one in known]
    for line in whole.lines:
        same = [
            other for part in each for other in part.lines if (other.account, other.keys) == (line.account, line.keys)
        ]
        assert combined(same, line.account, line.keys) == line
        assert line.total_micro == sum(other.total_micro for other in same)
        assert sum(whole.layers(line).values()) == line.total_micro
    assert whole.total_micro == sum(part.total_micro for part in each)


@given(days(), costs)
def test_a_bill_by_anything_has_the_same_total_which_is_that_of_the_books(
    month: list[list[Posting]], shared: list[SharedCost]
) -> None:
    def total(by: tuple[str, ...]) -> int:
        return bill([day(number, postings, by=by) for number, postings in enumerate(month)], by, shared).total_micro

    assert total(()) == total(("model",)) == total(("app", "model", "pool"))
    if not shared:
        exact = [sum(p.exact_cost for p in postings if p.kind.value != "borrowed") for postings in month]
        assert total(()) == sum(round_half_up(cost) for cost in exact)


@given(st.integers(0, 10**12), st.lists(st.integers(1, 743), max_size=40, unique=True))
def test_the_parts_of_a_month_bear_a_cost_exactly_once(micro: int, cuts: list[int]) -> None:
    cost = SharedCost("room", "operation", micro, "uniform")
    edges = [0, *sorted(cuts), 744]  # of a month whose length divides nothing evenly
    pieces = [Day(start * H, end * H - (end == 744), 0, 744 * H - 1, ()) for start, end in pairwise(edges)]
    assert sum(accrued(cost, each) for each in pieces) == micro * COST_UNIT


@given(costs, st.integers(0, 30))
def test_the_days_of_a_month_bear_its_shared_costs_in_full(shared: list[SharedCost], weeks: int) -> None:
    always = [msgspec.structs.replace(cost, pool=None, start_ns=None, until_ns=None) for cost in shared]
    month = [day(number, CLOSED if number < weeks else ()) for number in range(30)]
    borne = sum(sum(line.shared.values()) for line in bill(month, (), always).lines)
    exact = sum(cost.micro_per_month for cost in always)
    assert abs(borne - exact) <= 30  # each day is rounded once, with all its other amounts
    assert bill(month, (), always).total_micro == sum(bill([each], (), always).total_micro for each in month)


@given(days(), st.randoms(use_true_random=False))
def test_the_order_of_postings_does_not_matter(month: list[list[Posting]], random: Random) -> None:
    known = [day(number, postings) for number, postings in enumerate(month)]
    other = [
        msgspec.structs.replace(each, postings=tuple(random.sample(each.postings, len(each.postings))))
        for each in known
    ]
    cost = [SharedCost("room", "operation", 10**9 + 1, "proportional")]
    assert bill(other, (), cost) == bill(known, (), cost)


@given(days())
def test_lending_is_money_between_accounts(month: list[list[Posting]]) -> None:
    """What a borrower pays is what its lender earns, to the unit, and the matrix says the same."""
    made = bill([day(number, postings) for number, postings in enumerate(month)], ())
    paid = {line.account: line.micro["borrowed"] for line in made.lines if "borrowed" in line.micro}
    earned = {line.account: line.micro[EARNED] for line in made.lines if EARNED in line.micro}
    assert sum(paid.values()) + sum(earned.values()) == 0
    by_borrower: Counter[str] = Counter()
    for (_, borrower), lent in matrix([day(number, postings) for number, postings in enumerate(month)]).items():
        by_borrower[borrower] += lent.micro
    assert by_borrower == paid
