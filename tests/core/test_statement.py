"""Given days at their finest, when they are folded, then every split of them has the same sum."""

from hypothesis import given
from hypothesis import strategies as st

from commonpool.core.billing import Bill, Day, HourlySum, PostingSum, SharedCost, bill
from commonpool.core.statement import DIMENSIONS, FINEST, Statement, added, fold, label

DAY = 86_400 * 10**9
COSTS = (
    SharedCost("room", "infrastructure", 1_000_003, "uniform"),
    SharedCost("team", "operation", 77, "proportional"),
)
GROUPS = {"tenant:a": "science/physics", "tenant:b": "science", "group:science": "science"}


def posting(tenant: str, app: str, kind: str, quantity: int, micro: int = 2_500_000, **sides: str) -> PostingSum:
    keys = (tenant, app, "", "echo" if app else "", "", "sync" if app else "", "", "", "main", "")
    debit, credit = sides.get("debit", f"tenant:{tenant}"), sides.get("credit", "pool:main")
    return PostingSum(keys, kind, debit, credit, "gpu_hour", micro, quantity, "main")


def statement(*days: tuple[PostingSum, ...]) -> Statement:
    made = {}
    for number, postings in enumerate(days):
        counts = (HourlySum(("a", "chat", *[""] * 8), requests=number + 1),)
        day = Day(number * DAY, (number + 1) * DAY, 0, 30 * DAY, postings, counts)
        made[f"2026-11-{number + 1:02d}"] = bill((day,), FINEST, COSTS)
    return Statement(made, GROUPS)


POSTINGS = st.lists(
    st.builds(
        posting,
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["chat", "code"]),
        st.sampled_from(["used", "borrowed"]),
        st.integers(0, 10**18),
        st.integers(0, 10**7),
        credit=st.sampled_from(["pool:main", "tenant:c", "group:science"]),
    ),
    max_size=5,
).map(tuple)


def money(found: Bill) -> int:
    return found.total_micro


@given(st.lists(POSTINGS, min_size=1, max_size=4), st.lists(st.sampled_from(DIMENSIONS), unique=True, max_size=3))
def test_every_split_has_the_same_sum(days: list[tuple[PostingSum, ...]], by: list[str]) -> None:
    known = statement(*days)
    whole = money(fold([known], (), {}))
    assert money(fold([known], by, {})) == whole
    assert sum(money(fold([Statement({name: day}, GROUPS)], by, {})) for name, day in known.days.items()) == whole
    tenants = {line.keys[0] for line in fold([known], ("tenant",), {}).lines}
    assert sum(money(fold([known], by, {"tenant": [tenant]})) for tenant in tenants) == whole


@given(st.lists(POSTINGS, min_size=1, max_size=3))
def test_a_tenant_pays_the_same_however_its_bill_is_split(days: list[tuple[PostingSum, ...]]) -> None:
    known = statement(*days)
    for line in fold([known], ("tenant",), {}).lines:
        only = {"tenant": [line.keys[0]]}
        for by in (("app",), ("day", "type"), ("pool", "model")):
            assert money(fold([known], by, only)) == line.total_micro


def test_groups_hold_what_is_below_them() -> None:
    known = statement(
        (posting("a", "chat", "used", 10), posting("b", "chat", "used", 20), posting("c", "x", "used", 5))
    )
    by_group = {line.keys[0]: line.used for line in fold([known], ("group",), {}).lines}
    assert by_group == {"science/physics": 10, "science": 20, "": 5}
    assert sum(line.used for line in fold([known], (), {"group": ["science"]}).lines) == 30
    assert sum(line.used for line in fold([known], (), {"group": ["physics"]}).lines) == 10


def test_counts_go_with_their_work() -> None:
    known = statement((posting("a", "chat", "used", 1),), ())
    (line,) = fold([known], ("app",), {"app": ["chat"]}).lines
    assert line.counts.requests == 3
    assert [each.counts.requests for each in fold([known], ("day",), {"tenant": ["a"]}).lines] == [1, 2]


def test_accounts_have_names_of_their_own() -> None:
    accounts = ("tenant:a", "group:a", "platform", "tenant:platform")
    assert [label(account) for account in accounts] == ["a", "group:a", "platform", "tenant:platform"]


@given(
    st.lists(POSTINGS, min_size=1, max_size=5),
    st.lists(st.sampled_from(DIMENSIONS), unique=True, max_size=3),
    st.integers(0, 5),
)
def test_tables_of_days_add_up_to_the_table_of_all_of_them(
    days: list[tuple[PostingSum, ...]], by: list[str], first: int
) -> None:
    whole = statement(*days)
    parts = [
        Statement(dict(part), GROUPS) for part in (list(whole.days.items())[:first], list(whole.days.items())[first:])
    ]
    assert added([fold([part], by, {}) for part in parts], by) == fold([whole], by, {})
