"""The store in memory: the same contract without files, for tests and for simulations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from commonpool.core.model import NS_PER_HOUR, Loan, UsageRecord
from commonpool.core.pricing import exact_cost
from commonpool.core.standing import NONE, Before, Passage
from commonpool.store.contract import (
    NO_FILTERS,
    ConfigRevision,
    Filters,
    Key,
    KeyNotFoundError,
    LoanRow,
    Place,
    StoreError,
    UsageTable,
)
from commonpool.store.memory_accounts import MemoryAccounts
from commonpool.store.memory_alerts import MemoryAlerts
from commonpool.store.memory_audit import MemoryAudit
from commonpool.store.memory_jobs import MemoryJobs
from commonpool.store.memory_later import MemoryLater
from commonpool.store.memory_ledger import MemoryLedger
from commonpool.store.memory_releases import MemoryReleases
from commonpool.store.memory_secrets import MemorySecrets
from commonpool.store.memory_waits import MemoryWaits
from commonpool.store.summary import (
    NS_PER_DAY,
    PERCENTS,
    Keys,
    Quantiles,
    Query,
    Sums,
    check_filters,
    check_range,
    day_label,
    hour_label,
    query,
    table,
)


class MemoryStore(
    MemoryJobs,
    MemoryReleases,
    MemoryLedger,
    MemoryAccounts,
    MemoryAudit,
    MemorySecrets,
    MemoryAlerts,
    MemoryWaits,
    MemoryLater,
):
    """A `contract.Store` that forgets everything at its end and grows without bound until then."""

    def __init__(self) -> None:
        super().__init__()
        self._last_attempts: dict[str, int] = {}
        self._configs: dict[int, ConfigRevision] = {}

    def add_usage(self, records: Iterable[UsageRecord]) -> tuple[UsageRecord, ...]:
        """See `UsageSink.add_usage`."""
        differing: list[UsageRecord] = []
        for record in list(records):
            key = record.request_id, record.attempt
            if key not in self._records:
                self._records[key] = record
                self._waits.came.append(record)
            elif self._records[key] != record:
                differing.append(record)
            last = self._last_attempts.get(record.request_id, 0)
            self._last_attempts[record.request_id] = max(last, record.attempt)
        return tuple(differing)

    def sync(self) -> None:
        """There is nothing to sync."""

    def usage(self, by: Sequence[str], since_ns: int, until_ns: int, filters: Filters = NO_FILTERS) -> UsageTable:
        """See `Store.usage`."""
        question = query(by, since_ns, until_ns, filters)
        lines: dict[Keys, Sums] = {}
        waits: dict[Keys, list[int]] = {}
        for record in self._between(since_ns, until_ns):
            keys = _keys(question, record, record.tenant)
            if keys is not None:
                lines.setdefault(keys, Sums()).add(self._sums(record))
                if record.milli_gpu:
                    waits.setdefault(keys, []).append(record.wait_ns)
            for loan in record.loans if question.lenders else ():
                keys = _keys(question, record, loan.lender)
                if keys is not None and loan.lender:
                    lines.setdefault(keys, Sums()).lent_milli_gpu_ns += _use(loan)
        overall = _quantiles([wait for line in waits.values() for wait in line])
        return table(question, lines, {keys: _quantiles(line) for keys, line in waits.items()}, overall)

    def loans(self, since_ns: int, until_ns: int, tenants: Sequence[str] | None = None) -> tuple[LoanRow, ...]:
        """See `Store.loans`."""
        check_range(since_ns, until_ns)
        found: dict[tuple[str, str], list[Loan]] = {}
        for record in self._between(since_ns, until_ns):
            for loan in record.loans:
                if tenants is None or loan.lender in tenants or loan.borrower in tenants:
                    found.setdefault((loan.lender, loan.borrower), []).append(loan)
        return tuple(
            LoanRow(
                lender,
                borrower,
                len(loans),
                milli_gpu_ns=sum(map(_use, loans)),
                length_ns_mean=sum(loan.end_ns - loan.start_ns for loan in loans) // len(loans),
                length_ns_max=max(loan.end_ns - loan.start_ns for loan in loans),
            )
            for (lender, borrower), loans in sorted(found.items())
        )

    def record(self, request_id: str) -> tuple[UsageRecord, ...]:
        """See `Store.record`."""
        return tuple(record for key, record in sorted(self._records.items()) if key[0] == request_id)

    def records(
        self,
        since_ns: int,
        until_ns: int,
        after: Place | None,
        limit: int,
        filters: Filters = NO_FILTERS,
        *,
        newest: bool = False,
    ) -> tuple[UsageRecord, ...]:
        """See `Store.records`."""
        check_filters(filters)
        ordered = sorted(self._between(since_ns, until_ns), key=_place, reverse=newest)
        return tuple(
            record
            for record in ordered
            if (after is None or (_place(record) < after if newest else _place(record) > after))
            and all(getattr(record, name) in values for name, values in filters.items())
        )[:limit]

    def arrival(self, since_ns: int, until_ns: int, number: int, *, newest: bool = False) -> int | None:
        """See `Store.arrival`."""
        arrived = sorted((record.arrived_ns for record in self._between(since_ns, until_ns)), reverse=newest)
        return arrived[number - 1] if number <= len(arrived) else None

    def before(self, passage: Passage, longest_ns: int) -> Mapping[str, Before]:
        """See `Store.before`."""
        found: dict[str, Before] = {}
        since_ns, until_ns = passage.since_ns, passage.until_ns
        for record in self._between(since_ns - longest_ns, until_ns + 1):
            if record.model != passage.model or record.request_id == passage.request_id:
                continue
            started_ns = record.arrived_ns + record.wait_ns
            waiting = record.arrived_ns < since_ns < started_ns
            served = record.milli_gpu > 0 and since_ns < started_ns <= until_ns
            if waiting or served:
                known = found.get(record.tenant, NONE)
                found[record.tenant] = known.plus(Before(int(waiting), int(served)))
        return found

    def add_key(self, key: Key) -> None:
        """See `Store.add_key`."""
        if key.key_id in self._keys:
            raise StoreError(f"A key with the id {key.key_id!r} exists already; create it again under another id.")
        self._keys[key.key_id] = key

    def list_keys(self) -> tuple[Key, ...]:
        """See `Store.list_keys`."""
        return tuple(sorted(self._keys.values(), key=lambda key: (key.created_ns, key.key_id)))

    def revoke_key(self, key_id: str, at_ns: int) -> Key:
        """See `Store.revoke_key`."""
        key = self._key(key_id)
        if key.revoked_ns is None:
            key = msgspec.structs.replace(key, revoked_ns=at_ns)
        self._keys[key_id] = key
        return key

    def rotate_key(self, key_id: str, successor: Key, until_ns: int) -> Key:
        """See `Store.rotate_key`."""
        old = self._key(key_id)
        if old.revoked_ns is not None:
            raise KeyNotFoundError.not_live(key_id)
        self.add_key(successor)
        ends = until_ns if old.expires_ns is None else min(old.expires_ns, until_ns)
        self._keys[key_id] = msgspec.structs.replace(old, expires_ns=ends)
        return self._keys[key_id]

    def add_config(self, config: ConfigRevision) -> None:
        """See `Store.add_config`."""
        if config.revision in self._configs:
            raise StoreError(f"Revision {config.revision} of the configuration is already kept.")
        self._configs[config.revision] = config

    def configs(self, limit: int = 100) -> tuple[ConfigRevision, ...]:
        """See `Store.configs`."""
        return tuple(config for _, config in sorted(self._configs.items(), reverse=True)[:limit])

    def close(self) -> None:
        """There is nothing to give back."""

    def _between(self, since_ns: int, until_ns: int) -> Iterator[UsageRecord]:
        return (record for record in self._records.values() if since_ns <= record.arrived_ns < until_ns)

    def _sums(self, record: UsageRecord) -> Sums:
        return Sums(
            requests=int(self._last_attempts[record.request_id] == record.attempt),
            attempts=1,
            dispatched=int(bool(record.milli_gpu)),
            tokens_in=record.tokens_in,
            tokens_cached=record.tokens_cached,
            tokens_out=record.tokens_out,
            milli_gpu_ns=record.milli_gpu_ns,
            exact_cost=exact_cost(record.milli_gpu_ns, record.micro_per_gpu_hour),
            borrowed_milli_gpu_ns=sum(map(_use, record.loans)),
            wait_ns_sum=record.wait_ns if record.milli_gpu else 0,
            wait_ns_max=record.wait_ns if record.milli_gpu else 0,
        )

    def _key(self, key_id: str) -> Key:
        if key_id not in self._keys:
            raise KeyNotFoundError(
                f"There is no key with the id {key_id!r}; `commonpool keys list` shows those there are."
            )
        return self._keys[key_id]


def _keys(question: Query, record: UsageRecord, tenant: str) -> Keys | None:
    """The line of a record as seen by `tenant` (its own, or a lender), None where a filter leaves it out."""
    values = {
        **{name: getattr(record, name) for name in record.__struct_fields__},
        "tenant": tenant,
        "outcome": record.outcome.value,
        "hour": hour_label(record.arrived_ns // NS_PER_HOUR),
        "day": day_label(record.arrived_ns // NS_PER_DAY),
    }
    if any(values[name] not in allowed for name, allowed in question.filters.items()):
        return None
    return tuple(values[name] for name in question.by)


def _quantiles(waits: list[int]) -> Quantiles:
    waits.sort()
    p50, p99 = (waits[(len(waits) * percent + 99) // 100 - 1] if waits else None for percent in PERCENTS)
    return p50, p99


def _use(loan: Loan) -> int:
    return loan.milli_gpu * (loan.end_ns - loan.start_ns)


def _place(record: UsageRecord) -> Place:
    return record.arrived_ns, record.request_id, record.attempt
