"""Metrics as a scraper sees them, read back with Prometheus's own parser."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from commonpool.core.model import NS_PER_HOUR, NS_PER_S, RECALLED, Outcome, Reason, Tier, UsageRecord
from commonpool.core.waits import End, judge
from commonpool.observe import metrics
from commonpool.observe.exposition import Counts, Family, render
from commonpool.observe.metrics import Meter
from tests.store.records import loan, refused, usage_record

TIERS = {"interactive": Tier("interactive", 2 * NS_PER_S, 3 * NS_PER_S), "batch": Tier("batch", 120 * NS_PER_S)}


def scrape(meter: Meter, *others: Family) -> dict[str, float]:
    """Sample values by `name{label="value",...}`, labels sorted."""
    return parsed(meter.render(others))


def values(meter: Meter) -> dict[str, float]:
    """The same of what is no histogram, without going by the text: that takes long where there is much."""
    found = {}
    for family in meter.families():
        for labels, value in family.samples:
            if not isinstance(value, Counts):
                pairs = sorted(zip(family.labels, labels, strict=True))
                found[f"{family.full_name}{{{','.join(f'{name}={label}' for name, label in pairs)}}}"] = value
    return found


def parsed(text: bytes) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_requests_tokens_and_gpu_time() -> None:
    meter = Meter()
    meter.record(usage_record("r1", milli_gpu_ns=1500 * NS_PER_S))
    meter.record(usage_record("r2", tier="batch", outcome=Outcome.FAILED))
    meter.record(usage_record("r2", tier="batch", attempt=2))
    found = scrape(meter)
    assert found["commonpool_requests_total{model=m,outcome=completed,tenant=a,tier=interactive}"] == 1
    assert found["commonpool_requests_total{model=m,outcome=completed,tenant=a,tier=batch}"] == 1
    assert found["commonpool_requests_total{model=m,outcome=failed,tenant=a,tier=batch}"] == 1
    assert found["commonpool_retries_total{model=m,tenant=a}"] == 1
    assert found["commonpool_gpu_seconds_total{model=m,tenant=a}"] == 1.5 + 2 * 5e-9


def test_kinds_of_tokens_do_not_overlap() -> None:
    meter = Meter()
    meter.record(usage_record(tokens_in=100, tokens_cached=40, tokens_out=30))
    found = scrape(meter)
    kinds = {
        kind: found[f"commonpool_tokens_total{{kind={kind},model=m,tenant=a}}"]
        for kind in ("input", "input_cached", "output")
    }
    assert kinds == {"input": 60, "input_cached": 40, "output": 30}


def test_refusals_have_a_reason_and_no_wait() -> None:
    meter = Meter()
    meter.record(refused("r1", reason="queue_full"))
    meter.refused("", "unauthenticated")
    meter.refused("", "unauthenticated", 2)
    found = scrape(meter)
    assert found["commonpool_refusals_total{reason=queue_full,tenant=a}"] == 1
    assert found["commonpool_refusals_total{reason=unauthenticated,tenant=}"] == 3
    assert found["commonpool_requests_total{model=m,outcome=refused,tenant=a,tier=interactive}"] == 1
    assert found["commonpool_wait_seconds_count{model=m,tenant=a,tier=interactive}"] == 0


def test_errors_that_are_held_back_have_a_tenant_and_a_reason() -> None:
    meter = Meter()
    meter.slowed("a", "at_once")
    meter.slowed("a", "at_once", 2)
    meter.slowed("a", "before_retry_after")
    found = scrape(meter)
    assert found["commonpool_slowed_total{tenant=a,why=at_once}"] == 3
    assert found["commonpool_slowed_total{tenant=a,why=before_retry_after}"] == 1


def test_histograms_are_cumulative_up_to_an_hour() -> None:
    meter = Meter()
    for wait_ns in (0, 5_000_000, 5_000_001, NS_PER_HOUR, NS_PER_HOUR + 1):
        meter.record(usage_record(wait_ns=wait_ns, first_token_ns=0))
    found = scrape(meter)
    labels = "model=m,tenant=a,tier=interactive"
    name = "commonpool_wait_seconds_bucket{le=%s,%s}"
    bounds = ("0.005", "0.01", "1800.0", "3600.0", "+Inf")
    assert [found[name % (bound, labels)] for bound in bounds] == [2, 3, 3, 4, 5]
    assert found[f"commonpool_wait_seconds_count{{{labels}}}"] == 5
    assert found[f"commonpool_wait_seconds_sum{{{labels}}}"] == 7200.010000002
    assert found[f"commonpool_first_token_seconds_count{{{labels}}}"] == 0
    assert found[f"commonpool_request_seconds_count{{{labels}}}"] == 5


def test_what_is_answered_later_is_counted_and_is_in_no_histogram_of_waits() -> None:
    meter = Meter()
    meter.record(usage_record(endpoint="batch", wait_ns=NS_PER_HOUR))
    found = scrape(meter)
    assert sum(count for name, count in found.items() if name.startswith("commonpool_requests_total")) == 1
    for name in ("wait", "first_token", "request"):
        assert found[f"commonpool_{name}_seconds_count{{model=m,tenant=a,tier=interactive}}"] == 0


def test_loans_as_each_party_sees_them() -> None:
    meter = Meter()
    loans = (loan("b", milli_gpu=1000, length_ns=2 * NS_PER_S), loan("", milli_gpu=500, length_ns=2 * NS_PER_S))
    meter.record(usage_record(loans=loans))
    found = scrape(meter)
    assert found["commonpool_borrowed_gpu_seconds_total{tenant=a}"] == 3
    assert found["commonpool_lent_gpu_seconds_total{tenant=b}"] == 2
    assert "commonpool_lent_gpu_seconds_total{tenant=}" not in found


def test_every_name_has_the_prefix() -> None:
    meter = Meter()
    meter.record(usage_record(loans=(loan("b"),)))
    others = Family("build_info", "gauge", "The version that runs.", ("version",), [(("1",), 1)])
    found = scrape(meter, others)
    assert all(name.startswith("commonpool_") for name in found)
    assert found["commonpool_build_info{version=1}"] == 1


def test_a_job_has_use_and_no_wait() -> None:
    meter = Meter(TIERS)
    job = usage_record(model="", replica="", endpoint="job", wait_ns=NS_PER_HOUR, milli_gpu_ns=2000 * NS_PER_S)
    meter.record(msgspec.structs.replace(job, loans=(loan("b", milli_gpu=1000, length_ns=NS_PER_S),)))
    found = scrape(meter)
    assert found["commonpool_gpu_seconds_total{model=,tenant=a}"] == 2
    assert found["commonpool_borrowed_gpu_seconds_total{tenant=a}"] == 1
    assert found["commonpool_wait_seconds_count{model=,tenant=a,tier=interactive}"] == 0
    assert found["commonpool_wait_promised_total{tenant=a,tier=interactive}"] == 0


def test_cost_is_in_millionths_of_the_currency() -> None:
    meter = Meter()
    meter.record(usage_record(milli_gpu_ns=250 * NS_PER_HOUR, micro_per_gpu_hour=2_000_000))
    meter.record(usage_record(milli_gpu_ns=250 * NS_PER_HOUR, micro_per_gpu_hour=0))
    assert scrape(meter)["commonpool_cost_micro_total{model=m,tenant=a}"] == 500_000


def test_the_time_from_token_to_token_is_of_streams_alone() -> None:
    meter = Meter()
    meter.record(usage_record(first_token_ns=NS_PER_S, total_ns=3 * NS_PER_S, tokens_out=21))
    meter.record(usage_record(first_token_ns=NS_PER_S, total_ns=3 * NS_PER_S, tokens_out=1))
    meter.record(usage_record(first_token_ns=NS_PER_S, total_ns=3 * NS_PER_S, tokens_out=21, stream=False))
    found = scrape(meter)
    assert found["commonpool_output_token_seconds_sum{model=m,tenant=a,tier=interactive}"] == 0.1
    name = "commonpool_output_token_seconds_bucket{le=%s,model=m,tenant=a,tier=interactive}"
    assert [found[name % bound] for bound in ("0.075", "0.1", "+Inf")] == [0, 1, 1]


def test_what_was_promised_later_is_judged_by_that() -> None:
    meter = Meter(TIERS)
    late = usage_record(wait_ns=5 * NS_PER_S, first_token_ns=6 * NS_PER_S, total_ns=7 * NS_PER_S)
    meter.record(late)
    meter.configure({"interactive": Tier("interactive", 10 * NS_PER_S)})
    meter.record(late)
    found = scrape(meter)
    kept = {
        name: found[f"commonpool_{name}_total{{tenant=a,tier=interactive}}"]
        for name in ("wait_promised", "wait_late", "first_token_promised", "first_token_late")
    }
    assert kept == {"wait_promised": 2, "wait_late": 1, "first_token_promised": 1, "first_token_late": 1}


def end_of(record: UsageRecord) -> End:
    known = {name: getattr(record, name) for name in End._fields if name != "ended_ns"}
    return End(**known, ended_ns=record.arrived_ns + record.total_ns)


TIMES = st.sampled_from([0, 1, 2 * NS_PER_S, 2 * NS_PER_S + 1, 3 * NS_PER_S + 1, 121 * NS_PER_S])


@given(
    replica=st.sampled_from(["m-0", ""]),
    outcome=st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.RUNNING]),
    reason=st.sampled_from(["", RECALLED, *map(str, Reason)]),
    tier=st.sampled_from(["interactive", "batch", "none"]),
    times=st.tuples(TIMES, TIMES, TIMES),
)
def test_promises_are_judged_as_in_the_books(
    replica: str, outcome: Outcome, reason: str, tier: str, times: tuple[int, int, int]
) -> None:
    wait_ns, first_token_ns, total_ns = times
    record = usage_record(
        replica=replica,
        outcome=Outcome.COMPLETED if reason == RECALLED else outcome,
        reason=reason,
        tier=tier,
        wait_ns=wait_ns,
        first_token_ns=first_token_ns,
        total_ns=total_ns,
    )
    if not replica and record.outcome in (Outcome.COMPLETED, Outcome.FAILED) and reason != RECALLED:
        return  # there is no such record of a request
    meter = Meter(TIERS)
    meter.record(record)
    found = values(meter)
    labels = f"{{tenant=a,tier={tier}}}"
    names = ("wait_promised", "wait_late", "first_token_promised", "first_token_late")
    kept = [found[f"commonpool_{name}_total{labels}"] for name in names]
    assert kept == list(judge(end_of(record), TIERS.get(tier, Tier(""))))


@given(st.text(max_size=8), st.integers(-(10**30), 10**30) | st.floats(allow_nan=False))
def test_text_reads_back(label: str, value: float) -> None:
    family = Family("x", "gauge", 'Of "this"\nand \\ that.', ("a", "b"), [((label, "é"), value)])
    (read,) = text_string_to_metric_families(render([family]).decode())
    (sample,) = read.samples
    assert (sample.labels, sample.value) == ({"a": label, "b": "é"}, value)


def test_a_family_without_samples_is_told_all_the_same() -> None:
    assert render([Family("x", "counter", "Text.", (), [])]) == (
        b"# HELP commonpool_x_total Text.\n# TYPE commonpool_x_total counter\n"
    )


def test_a_histogram_without_labels() -> None:
    found = parsed(render([Family("x", "histogram", "Text.", (), [((), Counts((1, 0, 2), 7.5))], bounds=(1, 2.5))]))
    assert found == {
        "commonpool_x_bucket{le=1.0}": 1,
        "commonpool_x_bucket{le=2.5}": 1,
        "commonpool_x_bucket{le=+Inf}": 3,
        "commonpool_x_sum{}": 7.5,
        "commonpool_x_count{}": 3,
    }


def test_label_values_are_bounded() -> None:
    meter = Meter()
    for number in range(metrics.LABEL_VALUES_MAX + 50):
        meter.record(usage_record(model=f"m{number}"))
        meter.refused("a", f"reason {number}")
    found = values(meter)
    assert len(meter._series) == metrics.LABEL_VALUES_MAX + 1
    assert found["commonpool_requests_total{model=other,outcome=completed,tenant=a,tier=interactive}"] == 50
    assert found["commonpool_refusals_total{reason=other,tenant=a}"] == 50


def test_combinations_of_labels_are_bounded() -> None:
    meter = Meter()
    for tenant in range(30):
        for model in range(100):
            meter.record(usage_record(tenant=f"t{tenant}", model=f"m{model}"))
    assert len(meter._series) == metrics.SERIES_MAX + 1
    assert sum(series.outcomes[Outcome.COMPLETED] for series in meter._series.values()) == 30 * 100
