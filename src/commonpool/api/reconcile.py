"""Reconciliation: the hours in the books against what the devices could do and what the backends saw held."""

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint
from commonpool.api.operations import Operations
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.usage import Period, between
from commonpool.api.wire.bill import ReconciledHour, ReconciliationTable
from commonpool.api.wire.units import gpu_seconds
from commonpool.core.pricing import exact_cost, round_half_up
from commonpool.store.ledger import UNKNOWN, UNSEEN, Reconciliation


async def reconciliation(operations: Operations, query: Period, _: Who) -> ReconciliationTable:
    since_ns, until_ns = between(operations, query)
    found = await operations.bills().reconciliations(since_ns, until_ns)
    return ReconciliationTable(
        since_ns=since_ns,
        until_ns=until_ns,
        currency=operations.config().currency,
        closes=all(map(_closes, found)),
        hours=tuple(map(_hour, found)),
    )


def _closes(hour: Reconciliation) -> bool:
    explained = sum(hour.causes.values()) == hour.held - hour.reported and hour.causes.keys().isdisjoint(
        (UNSEEN, UNKNOWN)
    )
    return hour.devices == hour.charged and explained


def _hour(hour: Reconciliation) -> ReconciledHour:
    return ReconciledHour(
        pool=hour.pool,
        hour_ns=hour.hour_ns,
        devices=gpu_seconds(hour.devices),
        charged=gpu_seconds(hour.charged),
        price_micro=hour.rates.micro_per_gpu_hour,
        cost_micro=round_half_up(exact_cost(hour.charged, hour.rates.micro_per_gpu_hour)),
        held=gpu_seconds(hour.held),
        reported=gpu_seconds(hour.reported),
        causes={cause: gpu_seconds(value) for cause, value in hour.causes.items()},
        closes=_closes(hour),
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/admin/v1/reconciliation",
        reconciliation,
        Permission.READ_BILLS,
        PLATFORM,
        "The hours in the books against what there was, and why they differ",
        ReconciliationTable,
        Period,
    ),
)
