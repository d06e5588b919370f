"""What every store does, told once over all; then the same random records and questions to all."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commonpool.core.model import (
    NS_PER_HOUR,
    NS_PER_S,
    Cause,
    Limits,
    Loan,
    LoanEnd,
    Outcome,
    TokenSource,
    UsageRecord,
    Wait,
)
from commonpool.core.pricing import round_half_up
from commonpool.store.contract import (
    DIMENSIONS,
    FILTERABLE,
    ConfigRevision,
    Key,
    KeyNotFoundError,
    LoanRow,
    QueryError,
    Store,
    StoreError,
    UsageRow,
)
from commonpool.store.memory import MemoryStore
from commonpool.store.sql.base import SqlStore
from tests.store.records import DAY, T0, loan, refused, usage_record

END = T0 + 1000 * DAY
KEY = Key("k1", b"salt", b"digest", "data", "a", "chat", created_ns=5, models=("m",), tier="batch", note="of Ann")


def rows(store: Store, *by: str, **filters: tuple[str, ...]) -> dict[tuple[str, ...], UsageRow]:
    table = store.usage(by, T0, END, filters)
    return {row.keys: row for row in table.rows}


# Usage


def test_a_record_comes_back_as_it_was(store: Store) -> None:
    first = usage_record("r1", outcome=Outcome.FAILED, token_source=TokenSource.ESTIMATED, stream=False)
    waits = (Wait(Cause.OWN_QUEUE, "", 3), Wait(Cause.ELASTIC_CAP, "a", 2), Wait(Cause.OWN_QUEUE, "", 1))
    metered = {"bytes_in": 1, "bytes_out": 2, "cpu_ns": 3, "memory_mib_s": 4, "gpu_memory_mib_s": 5}
    second = usage_record("r1", attempt=2, loans=(loan("b"), loan("", milli_gpu=10)), waits=waits, **metered)
    store.add_usage([second, usage_record("r2"), first])
    assert store.record("r1") == (first, second)
    assert store.record("r3") == ()


def test_records_come_in_pages_by_arrival(store: Store) -> None:
    first, again = usage_record("r1", arrived_ns=T0), usage_record("r1", attempt=2, arrived_ns=T0, loans=(loan("b"),))
    later, outside = usage_record("r0", arrived_ns=T0 + 1), usage_record("r2", arrived_ns=T0 + 9)
    store.add_usage([later, outside, again, first])
    assert store.records(T0, T0 + 9, None, 10) == (first, again, later)
    assert store.records(T0, T0 + 9, None, 2) == (first, again)
    assert store.records(T0, T0 + 9, (T0, "r1", 1), 10) == (again, later)
    assert store.records(T0, T0 + 9, (T0 + 1, "r0", 1), 10) == ()
    assert [store.arrival(T0, T0 + 9, number) for number in (1, 2, 3, 4)] == [T0, T0, T0 + 1, None]
    assert [store.arrival(T0, T0 + 9, number, newest=True) for number in (1, 3, 4)] == [T0 + 1, T0, None]
    assert store.arrival(T0 + 1, T0 + 9, 1) == T0 + 1
    assert store.arrival(T0, T0 + 1, 1, newest=True) == T0
    assert store.arrival(T0 + 9, T0, 1) is None


def test_a_record_counts_once(store: Store) -> None:
    record = usage_record("r1", loans=(loan("b"),))
    store.add_usage([record, record])
    store.add_usage([record, usage_record("r2")])
    total = store.usage([], T0, END).total
    assert (total.requests, total.attempts, total.borrowed_milli_gpu_ns) == (2, 2, 5000)


def test_the_first_of_two_records_of_an_attempt_stays(store: Store) -> None:
    first, again = usage_record("r1", loans=(loan("b"),)), usage_record("r2")
    assert store.add_usage([first, again]) == ()
    more, other = usage_record("r1", loans=(loan("c"),)), usage_record("r3")
    longer = usage_record("r3", run_ns=21)
    assert store.add_usage([more, again, other, longer, other]) == (more, longer)
    assert store.record("r1") + store.record("r3") == (first, other)
    assert store.usage([], T0, END).total.attempts == 3


def test_one_line(store: Store) -> None:
    store.add_usage([usage_record("r1", wait_ns=5), usage_record("r2", wait_ns=8, loans=(loan("b", milli_gpu=100),))])
    table = store.usage(["tenant", "model"], T0, T0 + 1)
    assert table.rows == (
        UsageRow(
            keys=("a", "m"),
            requests=2,
            attempts=2,
            dispatched=2,
            tokens_in=200,
            tokens_cached=80,
            tokens_out=60,
            milli_gpu_ns=10_000,
            borrowed_milli_gpu_ns=2000,
            lent_milli_gpu_ns=0,
            wait_ns_mean=6,
            wait_ns_p50=5,
            wait_ns_p99=8,
            wait_ns_max=8,
            cost_micro=0,
        ),
        UsageRow(("b", "m"), 0, 0, 0, 0, 0, 0, 0, 0, 2000, None, None, None, None, 0),
    )
    assert (table.by, table.since_ns, table.until_ns) == (("tenant", "model"), T0, T0 + 1)


def test_a_request_counts_once_however_often_it_was_tried(store: Store) -> None:
    store.add_usage(
        [
            usage_record("r1", attempt=1, outcome=Outcome.FAILED, replica="m-0"),
            usage_record("r1", attempt=2, outcome=Outcome.COMPLETED, replica="m-1"),
            usage_record("r2", attempt=1, outcome=Outcome.FAILED),
        ]
    )
    found = rows(store, "outcome")
    assert {keys: (row.requests, row.attempts) for keys, row in found.items()} == {
        ("completed",): (1, 1),
        ("failed",): (1, 2),
    }


def test_only_what_was_dispatched_has_a_wait(store: Store) -> None:
    store.add_usage([usage_record("r1", wait_ns=70), refused("r2"), refused("r3", tenant="b")])
    found = rows(store, "tenant")
    assert (found["a",].requests, found["a",].dispatched, found["a",].wait_ns_mean, found["a",].wait_ns_p50) == (
        2,
        1,
        70,
        70,
    )
    assert (found["b",].requests, found["b",].wait_ns_mean, found["b",].wait_ns_p99) == (1, None, None)


def test_quantiles_are_waits_that_occurred(store: Store) -> None:
    store.add_usage([usage_record(f"r{wait}", wait_ns=wait, tenant="ab"[wait > 100]) for wait in range(1, 300)])
    table = store.usage(["tenant"], T0, END)
    assert [(row.wait_ns_p50, row.wait_ns_p99, row.wait_ns_max) for row in (*table.rows, table.total)] == [
        (50, 99, 100),
        (200, 298, 299),
        (150, 297, 299),
    ]


def test_the_range_is_half_open_in_utc(store: Store) -> None:
    times = (T0 - 1, T0, T0 + NS_PER_HOUR - 1, T0 + NS_PER_HOUR, T0 + DAY)
    store.add_usage([usage_record(f"r{n}", arrived_ns=time) for n, time in enumerate(times)])
    table = store.usage(["day", "hour"], T0, T0 + DAY)
    assert [(*row.keys, row.requests) for row in table.rows] == [
        ("2024-01-01", "2024-01-01T00:00Z", 2),
        ("2024-01-01", "2024-01-01T01:00Z", 1),
    ]


def test_what_is_lent_stands_with_the_lender(store: Store) -> None:
    store.add_usage(
        [
            usage_record("r1", tenant="a", model="m", loans=(loan("b", length_ns=10), loan("", length_ns=1))),
            usage_record("r2", tenant="a", model="n", loans=(loan("b", length_ns=30),)),
        ]
    )
    both = rows(store, "tenant", "model")
    assert {keys: (row.borrowed_milli_gpu_ns, row.lent_milli_gpu_ns) for keys, row in both.items()} == {
        ("a", "m"): (11 * 250, 0),
        ("a", "n"): (30 * 250, 0),
        ("b", "m"): (0, 10 * 250),
        ("b", "n"): (0, 30 * 250),
    }
    assert rows(store, "tenant", tenant=("b",))["b",].lent_milli_gpu_ns == 40 * 250
    assert list(rows(store, "tenant", tenant=("a",))) == [("a",)]


@pytest.mark.parametrize("by", [(), ("model",), ("tenant", "app"), ("tenant", "tier")])
def test_a_line_that_is_not_one_lenders_says_nothing_of_lending(store: Store, by: tuple[str, ...]) -> None:
    store.add_usage([usage_record("r1", loans=(loan("b"),))])
    table = store.usage(by, T0, END)
    assert (table.total.lent_milli_gpu_ns, table.total.borrowed_milli_gpu_ns) == (None, 5000)


def test_nor_does_a_part_of_what_the_borrower_is(store: Store) -> None:
    store.add_usage([usage_record("r1", loans=(loan("b"),))])
    assert {row.lent_milli_gpu_ns for row in rows(store, "tenant", app=("chat",)).values()} == {None}
    assert rows(store, "tenant", model=("m",))["b",].lent_milli_gpu_ns == 5000


def test_filters_keep_what_has_one_of_the_values_of_each(store: Store) -> None:
    store.add_usage(
        [usage_record("r1"), usage_record("r2", tenant="b"), usage_record("r3", tenant="b", model="n"), refused("r4")]
    )
    assert list(rows(store, "tenant", "model", tenant=("b", "c"), model=("n",))) == [("b", "n")]
    assert list(rows(store, "tenant", outcome=("refused",))) == [("a",)]
    assert rows(store, "tenant", tenant=()) == {}


def test_what_a_filter_says_is_a_value_and_no_sql(store: Store) -> None:
    store.add_usage([usage_record("r1", tenant="a' OR '1'='1")])
    assert list(rows(store, "tenant", tenant=("a' OR '1'='1",))) == [("a' OR '1'='1",)]
    assert rows(store, "tenant", tenant=("x' OR '1'='1",)) == {}


@pytest.mark.parametrize(
    ("by", "filters", "sentence"),
    [
        (
            ["customer"],
            {},
            "Usage cannot be grouped by 'customer'; allowed are tenant, app, cost_center, .* hour, day.",
        ),
        (["tenant; DROP TABLE usage"], {}, "cannot be grouped by"),
        ([], {"hour": ("1",)}, "Usage cannot be filtered by 'hour'; allowed are tenant, .* pool."),
        ([], {"tenant": "ab"}, "The filter 'tenant' is a list of values, not the single text 'ab'."),
    ],
)
def test_a_question_that_makes_no_sense_is_told_so(
    store: Store, by: list[str], filters: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(QueryError, match=sentence):
        store.usage(by, T0, END, filters)


def test_a_time_out_of_range_is_told_so(store: Store) -> None:
    with pytest.raises(QueryError, match=f"until_ns is {2**63}; a time is a number of nanoseconds"):
        store.usage([], 0, 2**63)
    with pytest.raises(QueryError, match="since_ns is -1"):
        store.loans(-1, 5)


def test_no_usage_is_an_empty_table(store: Store) -> None:
    table = store.usage(["tenant"], T0, END)
    assert table.rows == ()
    assert table.total == UsageRow((), 0, 0, 0, 0, 0, 0, 0, 0, 0, None, None, None, None, 0)
    assert store.loans(T0, END) == ()


def test_sums_pass_64_bits(store: Store) -> None:
    big = 2**62
    store.add_usage(
        [
            usage_record(f"r{n}", milli_gpu_ns=big, wait_ns=big, tokens_in=big, micro_per_gpu_hour=10**9 + n)
            for n in range(8)
        ]
    )
    total = store.usage([], T0, END).total
    assert (total.milli_gpu_ns, total.tokens_in, total.wait_ns_mean) == (8 * big, 8 * big, big)
    assert total.cost_micro == round_half_up(sum(big * (10**9 + n) for n in range(8)))


def test_one_record_passes_64_bits(store: Store) -> None:
    # given eight GPUs held for thirty days, and the most that a store of before could keep
    month = usage_record("r1", milli_gpu=8000, run_ns=30 * DAY, milli_gpu_ns=8000 * 30 * DAY, micro_per_gpu_hour=7)
    less = usage_record("r2", milli_gpu_ns=10**18 - 1, micro_per_gpu_hour=7)
    assert month.milli_gpu_ns > 2**64
    # when they are kept, then they come back, and are billed, to the nanosecond
    store.add_usage([month, less])
    assert store.record("r1") + store.record("r2") == (month, less)
    total = store.usage([], T0, END).total
    assert total.milli_gpu_ns == month.milli_gpu_ns + less.milli_gpu_ns
    assert store.usage([], T0, END, {"tier": ("interactive",)}).total.cost_micro == round_half_up(
        7 * (month.milli_gpu_ns + less.milli_gpu_ns)
    )
    assert store.usage(["day"], T0, END).rows[0].milli_gpu_ns == total.milli_gpu_ns


def test_loans_pass_64_bits(store: Store) -> None:
    ten_days = 10 * DAY + 999_999_999
    store.add_usage([usage_record(f"r{n}", loans=(loan("b", milli_gpu=64_007, length_ns=ten_days),)) for n in range(3)])
    use = 3 * 64_007 * ten_days
    assert store.usage([], T0, END).total.borrowed_milli_gpu_ns == use
    assert [(row.milli_gpu_ns, row.length_ns_mean) for row in store.loans(T0, END)] == [(use, ten_days)]


def test_cost_is_by_the_price_in_force_and_lines_add_up(store: Store) -> None:
    hour = 1000 * NS_PER_HOUR
    third = hour // 3
    store.add_usage(
        [usage_record(f"r{n}", tenant=f"t{n}", milli_gpu_ns=third, micro_per_gpu_hour=10) for n in range(3)]
        + [usage_record("r9", tenant="t0", milli_gpu_ns=hour, micro_per_gpu_hour=7)]
    )
    table = store.usage(["tenant"], T0, END)
    assert [row.cost_micro for row in table.rows] == [11, 3, 3]
    assert table.total.cost_micro == 17


def test_loans_by_lender_and_borrower(store: Store) -> None:
    store.add_usage(
        [
            usage_record("r1", loans=(loan("b", length_ns=10), loan("", length_ns=3))),
            usage_record("r2", loans=(loan("b", length_ns=31, milli_gpu=100),)),
            usage_record("r3", arrived_ns=END, loans=(loan("b"),)),
        ]
    )
    assert store.loans(T0, END) == (
        LoanRow("", "a", 1, milli_gpu_ns=750, length_ns_mean=3, length_ns_max=3),
        LoanRow("b", "a", 2, milli_gpu_ns=2500 + 3100, length_ns_mean=20, length_ns_max=31),
    )


def test_loans_that_a_tenant_is_a_party_to(store: Store) -> None:
    store.add_usage(
        [
            usage_record("r1", loans=(loan("b"), loan(""))),
            usage_record("r2", tenant="c", loans=(loan("b", "c"),)),
            usage_record("r3", tenant="c", loans=(loan("d", "c"),)),
        ]
    )

    def pairs(*tenants: str) -> list[tuple[str, str]]:
        return [(row.lender, row.borrower) for row in store.loans(T0, END, tenants)]

    assert pairs("b") == [("b", "a"), ("b", "c")]
    assert pairs("a") == [("", "a"), ("b", "a")]
    assert pairs("a", "d") == [("", "a"), ("b", "a"), ("d", "c")]
    assert pairs("x") == []
    assert pairs() == []  # none is not all


def test_records_of_some_tenants_fill_their_pages(store: Store) -> None:
    made = [usage_record(f"r{number}", arrived_ns=T0 + number, tenant="ab"[number % 2]) for number in range(6)]
    store.add_usage(made)
    assert store.records(T0, END, None, 2, {"tenant": ["a"]}) == (made[0], made[2])
    assert store.records(T0, END, (T0 + 2, "r2", 1), 2, {"tenant": ["a"]}) == (made[4],)
    assert store.records(T0, END, None, 9, {"tenant": ["a", "b"]}) == tuple(made)
    assert store.records(T0, END, None, 9, {"tenant": ["c"]}) == ()
    assert store.records(T0, END, None, 9, {"tenant": []}) == ()  # none is not all


def test_records_are_found_by_what_they_are_the_newest_first(store: Store) -> None:
    made = [
        usage_record(
            f"r{number}", arrived_ns=T0 + number // 2, model="xy"[number % 2], reason="queue_full" * (number > 3)
        )
        for number in range(6)
    ]
    store.add_usage(made)
    assert store.records(T0, END, None, 4, newest=True) == (made[5], made[4], made[3], made[2])
    assert store.records(T0, END, (T0 + 1, "r2", 1), 4, newest=True) == (made[1], made[0])
    assert store.records(T0, END, None, 9, {"model": ["y"], "reason": ["queue_full"]}) == (made[5],)
    assert store.records(T0, END, None, 9, {"model": ["x"], "reason": [""]}, newest=True) == (made[2], made[0])
    with pytest.raises(QueryError, match="Records cannot be filtered by 'colour'"):
        store.records(T0, END, None, 9, {"colour": ["red"]})


# Keys


def test_a_key_is_kept_as_it_was(store: Store) -> None:
    older = msgspec.structs.replace(KEY, key_id="k0", created_ns=4, models=None, scope="admin", expires_ns=99)
    bounds = {
        "tiers": (),
        "networks": ("10.0.0.0/8", "fd00::/8"),
        "limits": Limits(requests_per_minute=5, run_ns_max=9),
    }
    newer = msgspec.structs.replace(KEY, key_id="k2", created_ns=6, role="viewer", account="robot", **bounds)
    for key in (newer, KEY, older):
        store.add_key(key)
    assert store.list_keys() == (older, KEY, newer)


def test_an_id_is_taken_once(store: Store) -> None:
    store.add_key(KEY)
    with pytest.raises(StoreError, match="'k1' exists already"):
        store.add_key(KEY)


def test_a_revoked_key_stays_in_the_list_with_the_time_of_its_first_revocation(store: Store) -> None:
    store.add_key(KEY)
    assert store.revoke_key("k1", 50).revoked_ns == 50
    assert store.revoke_key("k1", 60).revoked_ns == 50
    assert [key.revoked_ns for key in store.list_keys()] == [50]


def test_rotation_lets_the_old_key_live_a_while(store: Store) -> None:
    store.add_key(KEY)
    successor = msgspec.structs.replace(KEY, key_id="k2", created_ns=6)
    assert store.rotate_key("k1", successor, until_ns=100).expires_ns == 100
    assert [(key.key_id, key.expires_ns) for key in store.list_keys()] == [("k1", 100), ("k2", None)]


def test_rotation_never_prolongs_a_key(store: Store) -> None:
    store.add_key(msgspec.structs.replace(KEY, expires_ns=70))
    assert store.rotate_key("k1", msgspec.structs.replace(KEY, key_id="k2"), until_ns=100).expires_ns == 70


def test_a_rotation_that_fails_changes_nothing(store: Store) -> None:
    store.add_key(KEY)
    with pytest.raises(StoreError):
        store.rotate_key("k1", KEY, until_ns=100)
    assert store.list_keys() == (KEY,)


def test_a_key_that_was_revoked_meanwhile_is_not_rotated(store: Store) -> None:
    store.add_key(KEY)
    revoked = store.revoke_key("k1", 50)
    with pytest.raises(KeyNotFoundError, match="no live key with the id 'k1'"):
        store.rotate_key("k1", msgspec.structs.replace(KEY, key_id="k2"), until_ns=100)
    assert store.list_keys() == (revoked,)


def test_unknown_keys_are_told_so(store: Store) -> None:
    with pytest.raises(KeyNotFoundError, match="no key with the id 'k9'"):
        store.revoke_key("k9", 1)
    with pytest.raises(KeyNotFoundError, match="no key with the id 'k9'"):
        store.rotate_key("k9", KEY, 1)
    assert store.list_keys() == ()


# Configurations


def test_configurations_are_listed_newest_first(store: Store) -> None:
    configs = [
        ConfigRevision(revision, 10 * revision, {"commonpool.yaml": f"# {revision} ü"}) for revision in (1, 2, 3)
    ]
    for config in configs:
        store.add_config(config)
    assert store.configs(2) == (configs[2], configs[1])
    with pytest.raises(StoreError, match="Revision 2 of the configuration is already kept"):
        store.add_config(configs[1])


# Both stores, the same answers

small = st.integers(0, 3)
names = st.sampled_from("ab")


@st.composite
def records(draw: st.DrawFn) -> UsageRecord:
    tenant = draw(names)
    dispatched = draw(st.booleans())
    lenders = draw(st.lists(st.sampled_from(["", "c", "b" if tenant == "a" else "a"]), max_size=2))
    return usage_record(
        f"r{draw(small)}",
        attempt=draw(st.integers(0, 2)),
        tenant=tenant,
        app=draw(names),
        model=draw(names),
        tier=draw(names),
        outcome=draw(st.sampled_from(list(Outcome))),
        replica="m-0" if dispatched else "",
        arrived_ns=T0 + draw(small) * 13 * NS_PER_HOUR,
        wait_ns=draw(st.integers(0, 9)),
        milli_gpu_ns=draw(st.integers(0, 2**70)),
        micro_per_gpu_hour=draw(st.integers(0, 10**7)),
        loans=tuple(
            Loan(
                lender,
                tenant,
                "r",
                draw(st.integers(1, 8000)),
                T0,
                T0 + draw(st.integers(0, NS_PER_S)),
                LoanEnd.COVERED,
            )
            for lender in lenders
        ),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(records(), max_size=12),
    st.lists(st.sampled_from(DIMENSIONS), max_size=3),
    st.dictionaries(st.sampled_from(FILTERABLE), st.lists(names, max_size=2).map(tuple), max_size=1),
    st.integers(0, 50),
)
def test_all_stores_answer_alike_and_lines_add_up(
    sql_store: SqlStore, kept: list[UsageRecord], by: list[str], filters: dict[str, tuple[str, ...]], hours: int
) -> None:
    with sql_store._transaction(durable=False) as connection:
        connection.run("DELETE FROM loans")
        connection.run("DELETE FROM usage")
    memory = MemoryStore()
    assert sql_store.add_usage(kept) == memory.add_usage(kept)
    table = sql_store.usage(by, T0, T0 + hours * NS_PER_HOUR, filters)
    assert table == memory.usage(by, T0, T0 + hours * NS_PER_HOUR, filters)
    assert sql_store.loans(T0, END) == memory.loans(T0, END)
    for field in ("requests", "attempts", "tokens_in", "milli_gpu_ns", "borrowed_milli_gpu_ns", "cost_micro"):
        if table.by:
            assert sum(getattr(row, field) for row in table.rows) == getattr(table.total, field)


@settings(max_examples=50, deadline=None)
@given(st.lists(records(), max_size=12), st.lists(st.sampled_from(DIMENSIONS), max_size=2))
def test_every_table_of_a_range_has_one_total_and_days_sum_to_it(kept: list[UsageRecord], by: list[str]) -> None:
    store = MemoryStore()
    store.add_usage(kept)
    whole = store.usage([], T0, T0 + 3 * DAY).total
    cost = sum(row.cost_micro for row in store.usage(["day", *by], T0, T0 + 3 * DAY).rows)
    assert cost == whole.cost_micro
    days = [store.usage(by, T0 + n * DAY, T0 + (n + 1) * DAY).total for n in range(3)]
    for field in ("requests", "attempts", "tokens_in", "milli_gpu_ns", "borrowed_milli_gpu_ns"):
        assert sum(getattr(day, field) for day in days) == getattr(whole, field)
