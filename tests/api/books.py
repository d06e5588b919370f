"""A product with books to bill: what is noted while work runs, and hours closed as the product closes them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from commonpool.config.billing import rates
from commonpool.config.calendar import Calendar
from commonpool.control.books import Books, Scope
from commonpool.core.ledger import Standing
from commonpool.core.model import NS_PER_HOUR, Loan, LoanEnd, Outcome, UsageRecord
from commonpool.core.pricing import charged_price
from tests.api.fakes import FakeOperations, sources
from tests.store.records import usage_record

ZONE = "Europe/Berlin"
HOUR = NS_PER_HOUR
BILLED = """
pools:
  main: {gpus: 4_gpu}
models:
  echo:
    version: v1
    gpu: 2_gpu
    slots: 4
    context: 2048
    engine: {kind: attached, urls: ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]}
prices:
  currency: EUR
  time_zone: Europe/Berlin
  gpu_hour: {main: 2.50}
  lending: {main: 80%}
  meters: {million_tokens_in: 0.1, million_tokens_out: 0.3, request: 0.000001}
costs:
  - {name: machine room, layer: infrastructure, pool: main, month: 400, split: guaranteed}
  - {name: platform team, layer: operation, month: 1000.01, split: uniform}
groups:
  science: {}
tenants:
  support:
    tenant: {guaranteed: 2_gpu, elastic_cap: 4_gpu}
    apps: {helpdesk: {cost_center: CC-1}}
  research:
    tenant: {guaranteed: 1_gpu, elastic_cap: 4_gpu, group: science}
    apps: {papers: {}, slides: {}}
"""
GUARANTEED = {"tenant:support": 2000, "tenant:research": 1000}


def at(text: str) -> int:
    """An instant of the billing time zone: `2026-12-31 23:00`."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(ZONE)).timestamp()) * 10**9


def billed(text: str = BILLED, now: str = "2027-01-02 00:30") -> FakeOperations:
    """A product with this configuration, at this time."""
    product = FakeOperations()
    product.configure(sources(text))
    product.now = at(now)
    return product


def work(request_id: str, ended: str | int, run_ns: int, **changes: Any) -> UsageRecord:
    """An attempt of support's on the whole of its guarantee that ended then, having run for so long.

    `loan` is how much of it was borrowed from research, milli_gpu.
    """
    ended_ns = at(ended) if isinstance(ended, str) else ended
    fields: dict[str, Any] = {
        "tenant": "support", "app": "helpdesk", "cost_center": "CC-1", "model": "echo", "version": "v1",
        "milli_gpu": 2000, "tokens_in": 1000, "tokens_cached": 0, "tokens_out": 500, "outcome": Outcome.COMPLETED,
    }  # fmt: skip
    lent = changes.pop("loan", 0)
    fields |= changes
    fields |= {"arrived_ns": ended_ns - run_ns, "wait_ns": 0, "run_ns": run_ns, "total_ns": run_ns}
    fields["milli_gpu_ns"] = fields["milli_gpu"] * run_ns
    fields["micro_per_gpu_hour"] = charged_price(fields["outcome"], 2_500_000)
    if lent:
        start = ended_ns - run_ns
        fields["loans"] = (Loan("research", fields["tenant"], request_id, lent, start, ended_ns, LoanEnd.TASK_DONE),)
    return usage_record(request_id, **fields)


def keep(
    product: FakeOperations, since: str, until: str, records: Iterable[UsageRecord] = (), milli_gpu: int = 4000
) -> None:
    """Note that the pool was there from `since` until `until`, full hours, with these records, and close the books."""
    product.store.add_usage(records)
    start, end = at(since), at(until)
    product.store.add_meters(
        [Standing("main", hour, hour + HOUR, milli_gpu, GUARANTEED) for hour in range(start, end, HOUR)]
    )
    close(product, end)


def close(product: FakeOperations, until_ns: int) -> None:
    """Close every hour until then that can be."""
    scope = _scope(product, until_ns)
    books = Books(product.store, clock=lambda: until_ns + HOUR, scope=lambda: scope, flush=lambda: True)
    books.close_until(until_ns, scope)


def _scope(product: FakeOperations, until_ns: int) -> Scope:
    config = product.config()
    return Scope(
        pools=tuple(config.policy.pools),
        offset_ns=Calendar(config.billing.time_zone).hour_offset_ns,
        noted_until=until_ns,
        rates=lambda pool, hour: rates(config, pool, hour),
        retention_ns=config.billing.retention_ns,
    )
