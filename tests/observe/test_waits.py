"""The sliding window of waits: what is in it, what has left it, and what has no wait."""

from commonpool.core.model import NS_PER_S, Outcome
from commonpool.observe.waits import SAMPLES_MAX, TENANTS_MAX, WINDOW_NS, Waits, WaitSummary
from tests.store.records import refused, usage_record

NOW = 10**18


def test_quantiles_by_nearest_rank() -> None:
    waits = Waits()
    for wait in range(1, 201):
        waits.record(usage_record(wait_ns=wait), NOW)
    assert waits.summary("a", NOW) == WaitSummary(samples=200, p50_ns=100, p99_ns=198)


def test_a_tenant_that_was_not_seen_has_no_waits() -> None:
    assert Waits().summary("a", NOW) == WaitSummary(0, None, None, 0, 0)


def test_tenants_are_apart() -> None:
    waits = Waits()
    waits.record(usage_record(tenant="a", wait_ns=1), NOW)
    waits.record(usage_record(tenant="b", wait_ns=9), NOW)
    assert [waits.summary(tenant, NOW).p50_ns for tenant in "ab"] == [1, 9]


def test_refused_and_abandoned_are_counted_apart() -> None:
    waits = Waits()
    waits.record(usage_record(wait_ns=50), NOW)
    waits.record(usage_record(wait_ns=60, outcome=Outcome.CANCELLED), NOW)  # its client left while it ran
    waits.record(usage_record(wait_ns=70, outcome=Outcome.CANCELLED, replica=""), NOW)  # its client left the queue
    waits.record(usage_record(wait_ns=0, replica="", reason="response_cache"), NOW)  # answered from before
    for _ in range(3):
        waits.record(refused("r"), NOW)
    assert waits.summary("a", NOW) == WaitSummary(samples=2, p50_ns=50, p99_ns=60, refused=3, abandoned=1)


def test_what_is_answered_later_makes_no_wait() -> None:
    waits = Waits()
    waits.record(usage_record(wait_ns=10**13, endpoint="batch"), NOW)
    waits.record(refused("r", endpoint="batch"), NOW)
    assert waits.summary("a", NOW) == WaitSummary(0, None, None, 0, 0)


def test_what_is_older_than_the_window_has_left_it() -> None:
    waits = Waits()
    waits.record(usage_record(wait_ns=1), NOW)
    waits.record(refused("r"), NOW)
    waits.record(usage_record(wait_ns=2), NOW + WINDOW_NS - 1)
    waits.record(refused("r"), NOW + WINDOW_NS - 1)
    last = waits.summary("a", NOW + WINDOW_NS - 1)
    assert (last.samples, last.refused) == (2, 2)
    later = waits.summary("a", NOW + WINDOW_NS)
    assert (later.samples, later.p50_ns, later.refused) == (1, 2, 1)
    assert waits.summary("a", NOW + 3 * WINDOW_NS) == WaitSummary()


def test_a_window_is_bounded() -> None:
    waits = Waits()
    for wait in range(SAMPLES_MAX + 5):
        waits.record(usage_record(wait_ns=wait), NOW)
    for second in range(3 * WINDOW_NS // NS_PER_S):
        waits.record(refused("r"), NOW + second * NS_PER_S)
    window = waits._windows["a"]
    assert (len(window.samples), len(window.bins)) == (0, WINDOW_NS // (10 * NS_PER_S))


def test_the_newest_samples_stay() -> None:
    waits = Waits()
    for wait in range(SAMPLES_MAX + 5):
        waits.record(usage_record(wait_ns=wait), NOW)
    found = waits.summary("a", NOW)
    assert (found.samples, min(wait for _, wait in waits._windows["a"].samples)) == (SAMPLES_MAX, 5)


def test_tenants_are_bounded() -> None:
    waits = Waits()
    for number in range(TENANTS_MAX + 1):
        waits.record(usage_record(tenant=f"t{number}"), NOW)
    assert waits.summary("t0", NOW).samples == 0
    assert waits.summary(f"t{TENANTS_MAX}", NOW).samples == 1
