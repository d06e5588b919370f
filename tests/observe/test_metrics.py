"""Metrics as a scraper sees them, read back with Prometheus's own parser."""

from prometheus_client.parser import text_string_to_metric_families

from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Outcome
from commonpool.observe import metrics
from commonpool.observe.metrics import (
    BooksGauges,
    Gauges,
    JournalGauges,
    Meter,
    ModelGauges,
    PoolGauges,
    ReplicaGauges,
    TenantGauges,
)
from tests.store.records import loan, refused, usage_record

IDLE = Gauges(tenants=(), replicas=(), journal=JournalGauges(backlog_bytes=0, healthy=True, writer_alarm=False))


def scrape(meter: Meter) -> dict[str, float]:
    """Sample values by `name{label="value",...}`, labels sorted."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(meter.render().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_requests_tokens_and_gpu_time() -> None:
    meter = Meter(lambda: IDLE)
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
    meter = Meter(lambda: IDLE)
    meter.record(usage_record(tokens_in=100, tokens_cached=40, tokens_out=30))
    found = scrape(meter)
    kinds = {
        kind: found[f"commonpool_tokens_total{{kind={kind},model=m,tenant=a}}"]
        for kind in ("input", "input_cached", "output")
    }
    assert kinds == {"input": 60, "input_cached": 40, "output": 30}


def test_refusals_have_a_reason_and_no_wait() -> None:
    meter = Meter(lambda: IDLE)
    meter.record(refused("r1", reason="queue_full"))
    meter.refused("", "unauthenticated")
    found = scrape(meter)
    assert found["commonpool_refusals_total{reason=queue_full,tenant=a}"] == 1
    assert found["commonpool_refusals_total{reason=unauthenticated,tenant=}"] == 1
    assert found["commonpool_requests_total{model=m,outcome=refused,tenant=a,tier=interactive}"] == 1
    assert found["commonpool_wait_seconds_count{tenant=a,tier=interactive}"] == 0


def test_errors_that_are_held_back_have_a_tenant_and_a_reason() -> None:
    meter = Meter(lambda: IDLE)
    for _ in range(3):
        meter.slowed("a", "at_once")
    meter.slowed("a", "before_retry_after")
    found = scrape(meter)
    assert found["commonpool_slowed_total{tenant=a,why=at_once}"] == 3
    assert found["commonpool_slowed_total{tenant=a,why=before_retry_after}"] == 1


def test_histograms_are_cumulative_up_to_an_hour_and_join_models() -> None:
    meter = Meter(lambda: IDLE)
    for number, wait_ns in enumerate((0, 5_000_000, 5_000_001, NS_PER_HOUR, NS_PER_HOUR + 1)):
        meter.record(usage_record(model=f"m{number}", wait_ns=wait_ns, first_token_ns=0))
    found = scrape(meter)
    name = "commonpool_wait_seconds_bucket{le=%s,tenant=a,tier=interactive}"
    assert [found[name % bound] for bound in ("0.005", "0.01", "1800.0", "3600.0", "+Inf")] == [2, 3, 3, 4, 5]
    assert found["commonpool_wait_seconds_count{tenant=a,tier=interactive}"] == 5
    assert found["commonpool_wait_seconds_sum{tenant=a,tier=interactive}"] == 7200.010000002
    assert found["commonpool_first_token_seconds_count{tenant=a,tier=interactive}"] == 0
    assert found["commonpool_request_seconds_count{tenant=a,tier=interactive}"] == 5


def test_what_is_answered_later_is_counted_and_is_in_no_histogram_of_waits() -> None:
    meter = Meter(lambda: IDLE)
    meter.record(usage_record(endpoint="batch", wait_ns=NS_PER_HOUR))
    found = scrape(meter)
    assert sum(count for name, count in found.items() if name.startswith("commonpool_requests_total")) == 1
    for name in ("wait", "first_token", "request"):
        assert found[f"commonpool_{name}_seconds_count{{tenant=a,tier=interactive}}"] == 0


def test_loans_as_each_party_sees_them() -> None:
    meter = Meter(lambda: IDLE)
    loans = (loan("b", milli_gpu=1000, length_ns=2 * NS_PER_S), loan("", milli_gpu=500, length_ns=2 * NS_PER_S))
    meter.record(usage_record(loans=loans))
    found = scrape(meter)
    assert found["commonpool_borrowed_gpu_seconds_total{tenant=a}"] == 3
    assert found["commonpool_lent_gpu_seconds_total{tenant=b}"] == 2
    assert "commonpool_lent_gpu_seconds_total{tenant=}" not in found


def test_gauges_are_read_at_the_scrape() -> None:
    reads: list[Gauges] = []
    now = Gauges(
        tenants=(TenantGauges("a", 2000, 2250, 0, 250, waiting=7, waiting_jobs=2, by_jobs=1500, releasable=300),),
        replicas=(ReplicaGauges("m-0", "m", ready=True, running=3, slots=4),),
        journal=JournalGauges(backlog_bytes=120, healthy=False, writer_alarm=True),
        pools=(PoolGauges("main", capacity=8000, free=1500, fragmented=500),),
        models=(ModelGauges("m", wanted=3, ready=1, starting=2, failures=4),),
        books=(BooksGauges("main", behind_ns=1_500_000_000, uncharged=0, unreported=2000 * 10**9),),
    )

    def read() -> Gauges:
        reads.append(now)
        return now

    meter = Meter(read)
    assert reads == []
    found = scrape(meter)
    assert found["commonpool_books_behind_seconds{pool=main}"] == 1.5
    assert found["commonpool_books_uncharged_gpu_seconds{pool=main}"] == 0
    assert found["commonpool_books_unreported_gpu_seconds{pool=main}"] == 2
    assert len(reads) == 1
    assert found["commonpool_tenant_guaranteed_gpus{tenant=a}"] == 2
    assert found["commonpool_tenant_in_use_gpus{tenant=a}"] == 2.25
    assert found["commonpool_tenant_lent_gpus{tenant=a}"] == 0
    assert found["commonpool_tenant_borrowed_gpus{tenant=a}"] == 0.25
    assert found["commonpool_tenant_waiting_requests{tenant=a}"] == 7
    assert found["commonpool_tenant_waiting_jobs{tenant=a}"] == 2
    assert found["commonpool_tenant_job_gpus{tenant=a}"] == 1.5
    assert found["commonpool_tenant_underused_gpus{tenant=a}"] == 0.3
    assert found["commonpool_pool_capacity_gpus{pool=main}"] == 8
    assert found["commonpool_pool_free_gpus{pool=main}"] == 1.5
    assert found["commonpool_pool_fragmented_gpus{pool=main}"] == 0.5
    assert found["commonpool_model_wanted_replicas{model=m}"] == 3
    assert found["commonpool_model_ready_replicas{model=m}"] == 1
    assert found["commonpool_model_starting_replicas{model=m}"] == 2
    assert found["commonpool_model_failed_starts{model=m}"] == 4
    assert found["commonpool_replica_ready{model=m,replica=m-0}"] == 1
    assert found["commonpool_replica_running_requests{model=m,replica=m-0}"] == 3
    assert found["commonpool_replica_slots{model=m,replica=m-0}"] == 4
    assert found["commonpool_journal_backlog_bytes{}"] == 120
    assert found["commonpool_journal_healthy{}"] == 0
    assert found["commonpool_usage_writer_alarm{}"] == 1


def test_every_name_has_the_prefix_and_the_version_is_told() -> None:
    meter = Meter(lambda: IDLE)
    meter.record(usage_record(loans=(loan("b"),)))
    found = scrape(meter)
    assert all(name.startswith("commonpool_") for name in found)
    assert sum(name.startswith("commonpool_build_info{") for name in found) == 1


def test_label_values_are_bounded() -> None:
    meter = Meter(lambda: IDLE)
    for number in range(metrics.LABEL_VALUES_MAX + 50):
        meter.record(usage_record(model=f"m{number}"))
        meter.refused("a", f"reason {number}")
    found = scrape(meter)
    assert len(meter._series) == metrics.LABEL_VALUES_MAX + 1
    assert found["commonpool_requests_total{model=other,outcome=completed,tenant=a,tier=interactive}"] == 50
    assert found["commonpool_refusals_total{reason=other,tenant=a}"] == 50


def test_combinations_of_labels_are_bounded() -> None:
    meter = Meter(lambda: IDLE)
    for tenant in range(110):
        for model in range(100):
            meter.record(usage_record(tenant=f"t{tenant}", model=f"m{model}"))
    assert len(meter._series) == metrics.SERIES_MAX + 1
    assert sum(series.outcomes[Outcome.COMPLETED] for series in meter._series.values()) == 110 * 100
