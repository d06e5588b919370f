"""The whole of `contract.Store` over a database that speaks SQL; how one is reached, its subclass knows."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from commonpool.core.billing import HourlySum, PostingSum
from commonpool.core.ledger import Span, Standing
from commonpool.core.model import Tier, UsageRecord
from commonpool.core.standing import Before, Passage
from commonpool.core.telling import Key as EpisodeKey
from commonpool.core.telling import Silence
from commonpool.core.underuse import Demand
from commonpool.core.waits import Judged
from commonpool.store import wait_rows
from commonpool.store.accounts import Account, Session, Whose
from commonpool.store.alerts import KeptEpisode
from commonpool.store.audit import AuditEntry, Head
from commonpool.store.books import Question, posting_question
from commonpool.store.contract import NO_FILTERS, ConfigRevision, Filters, Key, LoanRow, Place, UsageTable
from commonpool.store.jobs import JobAttempt, JobPlace, JobRecord, JobState
from commonpool.store.later import LaterHead, SealedLater
from commonpool.store.ledger import Closing, EndPlace, HourWork, Period, Reading, Reconciliation
from commonpool.store.lock import FolderLock
from commonpool.store.prompts import PromptHead, PromptLog, PromptPlace, SealedPrompt
from commonpool.store.releases import Release
from commonpool.store.secrets import DataKey
from commonpool.store.sql import (
    accounts,
    alerts,
    audit,
    configs,
    hour,
    jobs,
    keys,
    later,
    ledger,
    prompts,
    releases,
    secrets,
    usage,
)
from commonpool.store.sql.connection import Connection
from commonpool.store.sql.waits import SqlRows
from commonpool.store.summary import check_audit, check_filters, check_range, query
from commonpool.store.waits import Counted, Uncounted, WaitTable


class SqlStore(ABC):
    """A `contract.Store` that locks `folder`, where the journal is, until it is closed."""

    def __init__(self, folder: Path) -> None:
        """StoreError where the folder cannot be locked."""
        self._folder_lock = FolderLock(folder)
        self._write_lock = threading.Lock()

    @abstractmethod
    def _transaction(self, *, durable: bool) -> AbstractContextManager[Connection]:
        """One change at a time, all or nothing. StoreError where the database cannot be written now.

        What is in no journal is `durable`: a revoked key must not come back after a power cut.
        """

    @abstractmethod
    def _snapshot(self) -> AbstractContextManager[Connection]:
        """One state of the store, to read only. StoreError where the database cannot be read now."""

    @abstractmethod
    def sync(self) -> None:
        """See `UsageSink.sync`."""

    @abstractmethod
    def close(self) -> None:
        """See `Store.close`."""

    def add_usage(self, records: Iterable[UsageRecord]) -> tuple[UsageRecord, ...]:
        """See `UsageSink.add_usage`."""
        with self._transaction(durable=False) as connection:
            return usage.add_usage(connection, records)

    def usage(self, by: Sequence[str], since_ns: int, until_ns: int, filters: Filters = NO_FILTERS) -> UsageTable:
        """See `Store.usage`."""
        question = query(by, since_ns, until_ns, filters)
        with self._snapshot() as connection:
            return usage.usage(connection, question)

    def loans(self, since_ns: int, until_ns: int, tenants: Sequence[str] | None = None) -> tuple[LoanRow, ...]:
        """See `Store.loans`."""
        check_range(since_ns, until_ns)
        with self._snapshot() as connection:
            return usage.loans(connection, since_ns, until_ns, tenants)

    def record(self, request_id: str) -> tuple[UsageRecord, ...]:
        """See `Store.record`."""
        with self._snapshot() as connection:
            return usage.record(connection, request_id)

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
        with self._snapshot() as connection:
            return usage.records(connection, since_ns, until_ns, after, limit, filters, newest=newest)

    def arrival(self, since_ns: int, until_ns: int, number: int, *, newest: bool = False) -> int | None:
        """See `Store.arrival`."""
        with self._snapshot() as connection:
            return usage.arrival(connection, since_ns, until_ns, number, newest=newest)

    def before(self, passage: Passage, longest_ns: int) -> Mapping[str, Before]:
        """See `Store.before`."""
        with self._snapshot() as connection:
            return usage.before(connection, passage, longest_ns)

    def add_key(self, key: Key) -> None:
        """See `Store.add_key`."""
        with self._transaction(durable=True) as connection:
            keys.add_key(connection, key)

    def list_keys(self) -> tuple[Key, ...]:
        """See `Store.list_keys`."""
        with self._snapshot() as connection:
            return keys.list_keys(connection)

    def revoke_key(self, key_id: str, at_ns: int) -> Key:
        """See `Store.revoke_key`."""
        with self._transaction(durable=True) as connection:
            return keys.revoke_key(connection, key_id, at_ns)

    def rotate_key(self, key_id: str, successor: Key, until_ns: int) -> Key:
        """See `Store.rotate_key`."""
        with self._transaction(durable=True) as connection:
            return keys.rotate_key(connection, key_id, successor, until_ns)

    def add_account(self, account: Account) -> bool:
        """See `AccountStore.add_account`."""
        with self._transaction(durable=True) as connection:
            return accounts.add_account(connection, account)

    def accounts(self) -> tuple[Account, ...]:
        """See `AccountStore.accounts`."""
        with self._snapshot() as connection:
            return accounts.accounts(connection)

    def account(self, name: str) -> Account | None:
        """See `AccountStore.account`."""
        with self._snapshot() as connection:
            return accounts.account(connection, name)

    def replace_account(self, old: Account, new: Account) -> bool:
        """See `AccountStore.replace_account`."""
        with self._transaction(durable=True) as connection:
            return accounts.replace_account(connection, old, new)

    def remove_account(self, name: str, at_ns: int) -> tuple[str, ...] | None:
        """See `AccountStore.remove_account`."""
        with self._transaction(durable=True) as connection:
            return accounts.remove_account(connection, name, at_ns)

    def add_session(self, session: Session, unused_since_ns: int, keep: int) -> None:
        """See `AccountStore.add_session`."""
        with self._transaction(durable=True) as connection:
            accounts.add_session(connection, session, unused_since_ns, keep)

    def session(self, digest: bytes) -> Session | None:
        """See `AccountStore.session`."""
        with self._snapshot() as connection:
            return accounts.session(connection, digest)

    def sessions(
        self, now_ns: int, unused_since_ns: int, limit: int, whose: Whose | None = None
    ) -> tuple[Session, ...]:
        """See `AccountStore.sessions`."""
        with self._snapshot() as connection:
            return accounts.sessions(connection, now_ns, unused_since_ns, limit, whose)

    def sessions_named(self, beginning: bytes) -> tuple[Session, ...]:
        """See `AccountStore.sessions_named`."""
        with self._snapshot() as connection:
            return accounts.sessions_named(connection, beginning)

    def touch_session(self, digest: bytes, used_ns: int) -> None:
        """See `AccountStore.touch_session`."""
        with self._transaction(durable=False) as connection:
            accounts.touch_session(connection, digest, used_ns)

    def end_session(self, digest: bytes) -> None:
        """See `AccountStore.end_session`."""
        with self._transaction(durable=True) as connection:
            accounts.end_session(connection, digest)

    def save_alerts(self, kept: Iterable[KeptEpisode], forgotten: Collection[EpisodeKey] = ()) -> None:
        """See `AlertStore.save_alerts`."""
        with self._transaction(durable=False) as connection:
            alerts.save_alerts(connection, kept, forgotten)

    def alerts(self) -> tuple[KeptEpisode, ...]:
        """See `AlertStore.alerts`."""
        with self._snapshot() as connection:
            return alerts.alerts(connection)

    def save_silence(self, silence: Silence) -> None:
        """See `AlertStore.save_silence`."""
        with self._transaction(durable=True) as connection:
            alerts.save_silence(connection, silence)

    def silences(self) -> tuple[Silence, ...]:
        """See `AlertStore.silences`."""
        with self._snapshot() as connection:
            return alerts.silences(connection)

    def drop_silence(self, alert: str, tenant: str) -> None:
        """See `AlertStore.drop_silence`."""
        with self._transaction(durable=True) as connection:
            alerts.drop_silence(connection, alert, tenant)

    def drop_silences(self, until_ns: int) -> None:
        """See `AlertStore.drop_silences`."""
        with self._transaction(durable=False) as connection:
            alerts.drop_silences(connection, until_ns)

    def data_keys(self) -> tuple[DataKey, ...]:
        """See `SecretStore.data_keys`."""
        with self._snapshot() as connection:
            return secrets.data_keys(connection)

    def data_key(self, tenant: str) -> DataKey | None:
        """See `SecretStore.data_key`."""
        with self._snapshot() as connection:
            return secrets.data_key(connection, tenant)

    def add_data_key(self, key: DataKey) -> DataKey:
        """See `SecretStore.add_data_key`."""
        with self._transaction(durable=True) as connection:
            return secrets.add_data_key(connection, key)

    def rewrap_data_key(self, old: DataKey, new: DataKey) -> bool:
        """See `SecretStore.rewrap_data_key`."""
        with self._transaction(durable=True) as connection:
            return secrets.rewrap_data_key(connection, old, new)

    def forget_data_key(self, tenant: str) -> None:
        """See `SecretStore.forget_data_key`."""
        with self._transaction(durable=True) as connection:
            secrets.forget_data_key(connection, tenant)

    def prompt_logs(self) -> tuple[PromptLog, ...]:
        """See `PromptStore.prompt_logs`."""
        with self._snapshot() as connection:
            return prompts.prompt_logs(connection)

    def save_prompt_log(self, log: PromptLog) -> None:
        """See `PromptStore.save_prompt_log`."""
        with self._transaction(durable=True) as connection:
            prompts.save_prompt_log(connection, log)

    def drop_prompt_log(self, tenant: str) -> None:
        """See `PromptStore.drop_prompt_log`."""
        with self._transaction(durable=True) as connection:
            prompts.drop_prompt_log(connection, tenant)

    def add_prompts(self, entries: Sequence[SealedPrompt]) -> None:
        """See `PromptStore.add_prompts`."""
        with self._transaction(durable=False) as connection:
            prompts.add_prompts(connection, entries)

    def prompts(self, tenant: str, before: PromptPlace | None, limit: int) -> tuple[PromptHead, ...]:
        """See `PromptStore.prompts`."""
        with self._snapshot() as connection:
            return prompts.prompts(connection, tenant, before, limit)

    def prompt(self, tenant: str, request_id: str) -> SealedPrompt | None:
        """See `PromptStore.prompt`."""
        with self._snapshot() as connection:
            return prompts.prompt(connection, tenant, request_id)

    def prompt_bytes(self, tenant: str) -> int:
        """See `PromptStore.prompt_bytes`."""
        with self._snapshot() as connection:
            return prompts.prompt_bytes(connection, tenant)

    def delete_prompts(self, tenant: str, request_id: str | None = None) -> int:
        """See `PromptStore.delete_prompts`."""
        with self._transaction(durable=True) as connection:
            return prompts.delete_prompts(connection, tenant, request_id)

    def trim_prompts(self, tenant: str, before_ns: int, bytes_max: int) -> int:
        """See `PromptStore.trim_prompts`."""
        with self._transaction(durable=True) as connection:
            return prompts.trim_prompts(connection, tenant, before_ns, bytes_max)

    def laters(self) -> tuple[LaterHead, ...]:
        """See `LaterStore.laters`."""
        with self._snapshot() as connection:
            return later.laters(connection)

    def later(self, id_: str) -> SealedLater | None:
        """See `LaterStore.later`."""
        with self._snapshot() as connection:
            return later.later(connection, id_)

    def add_later(self, entry: SealedLater) -> None:
        """See `LaterStore.add_later`."""
        with self._transaction(durable=True) as connection:
            later.add_later(connection, entry)

    def end_later(self, entry: SealedLater) -> bool:
        """See `LaterStore.end_later`."""
        with self._transaction(durable=True) as connection:
            return later.end_later(connection, entry)

    def delete_later(self, id_: str) -> bool:
        """See `LaterStore.delete_later`."""
        with self._transaction(durable=True) as connection:
            return later.delete_later(connection, id_)

    def add_audit(self, entries: Sequence[AuditEntry]) -> Head:
        """See `AuditStore.add_audit`."""
        with self._transaction(durable=True) as connection:
            return audit.add_audit(connection, entries)

    def audit_head(self) -> Head:
        """See `AuditStore.audit_head`."""
        with self._snapshot() as connection:
            return audit.audit_head(connection)

    def audit(
        self, filters: Filters, since_ns: int, until_ns: int, before: int | None, limit: int
    ) -> tuple[AuditEntry, ...]:
        """See `AuditStore.audit`."""
        check_audit(filters, since_ns, until_ns)
        with self._snapshot() as connection:
            return audit.audit(connection, filters, since_ns, until_ns, before, limit)

    def audit_chain(self, after: int, limit: int) -> tuple[AuditEntry, ...]:
        """See `AuditStore.audit_chain`."""
        with self._snapshot() as connection:
            return audit.audit_chain(connection, after, limit)

    def add_config(self, config: ConfigRevision) -> None:
        """See `Store.add_config`."""
        with self._transaction(durable=True) as connection:
            configs.add_config(connection, config)

    def configs(self, limit: int = 100) -> tuple[ConfigRevision, ...]:
        """See `Store.configs`."""
        with self._snapshot() as connection:
            return configs.configs(connection, limit)

    def add_job(self, record: JobRecord) -> None:
        """See `JobStore.add_job`."""
        with self._transaction(durable=True) as connection:
            jobs.add_job(connection, record)

    def save_job(self, record: JobRecord) -> None:
        """See `JobStore.save_job`."""
        with self._transaction(durable=True) as connection:
            jobs.save_job(connection, record)

    def job(self, job_id: str) -> JobRecord | None:
        """See `JobStore.job`."""
        with self._snapshot() as connection:
            return jobs.job(connection, job_id)

    def jobs(
        self,
        tenants: Sequence[str] | None,
        states: Sequence[JobState],
        after: JobPlace | None,
        limit: int,
        pools: Sequence[str] | None = None,
    ) -> tuple[JobRecord, ...]:
        """See `JobStore.jobs`."""
        with self._snapshot() as connection:
            return jobs.jobs(connection, tenants, states, after, limit, pools)

    def job_attempts(self, job_id: str, limit: int) -> tuple[JobAttempt, ...]:
        """See `JobStore.job_attempts`."""
        with self._snapshot() as connection:
            return jobs.job_attempts(connection, job_id, limit)

    def forget_job(self, job_id: str) -> None:
        """See `JobStore.forget_job`."""
        with self._transaction(durable=True) as connection:
            jobs.forget_job(connection, job_id)

    def ended_jobs_beyond(self, tenant: str, keep: int, limit: int) -> tuple[str, ...]:
        """See `JobStore.ended_jobs_beyond`."""
        with self._snapshot() as connection:
            return jobs.ended_jobs_beyond(connection, tenant, keep, limit)

    def add_release(self, release: Release) -> Release:
        """See `ReleaseStore.add_release`."""
        with self._transaction(durable=True) as connection:
            return releases.add_release(connection, release)

    def undo_releases(self, tenant: str, at_ns: int, by: str) -> tuple[Release, ...]:
        """See `ReleaseStore.undo_releases`."""
        with self._transaction(durable=True) as connection:
            return releases.undo_releases(connection, tenant, at_ns, by)

    def releases(self, limit: int = 1000, tenants: Sequence[str] | None = None) -> tuple[Release, ...]:
        """See `ReleaseStore.releases`."""
        with self._snapshot() as connection:
            return releases.releases(connection, limit, tenants)

    def released(self) -> dict[str, int]:
        """See `ReleaseStore.released`."""
        with self._snapshot() as connection:
            return releases.released(connection)

    def save_demand(self, demands: Iterable[Demand]) -> None:
        """See `ReleaseStore.save_demand`."""
        with self._transaction(durable=True) as connection:
            releases.save_demand(connection, demands)

    def demand(self) -> tuple[Demand, ...]:
        """See `ReleaseStore.demand`."""
        with self._snapshot() as connection:
            return releases.demand(connection)

    def save_running(self, records: Iterable[UsageRecord]) -> None:
        """See `LedgerSink.save_running`."""
        with self._transaction(durable=False) as connection:
            ledger.save_running(connection, records)

    def running(self) -> tuple[UsageRecord, ...]:
        """See `LedgerStore.running`."""
        with self._snapshot() as connection:
            return ledger.running(connection)

    def add_meters(self, notes: Iterable[Standing | Span]) -> None:
        """See `LedgerSink.add_meters`."""
        with self._transaction(durable=False) as connection:
            ledger.add_meters(connection, notes)

    def hour_work(self, pool: str, start_ns: int) -> HourWork:
        """See `LedgerStore.hour_work`."""
        with self._snapshot() as connection:
            return hour.hour_work(connection, pool, start_ns)

    def close_hour(self, closing: Closing) -> bool:
        """See `LedgerStore.close_hour`."""
        with self._transaction(durable=True) as connection:
            return ledger.close_hour(connection, closing)

    def closed_until(self, pool: str) -> int | None:
        """See `LedgerStore.closed_until`."""
        with self._snapshot() as connection:
            return ledger.closed_until(connection, pool)

    def first_noted(self, pool: str) -> int | None:
        """See `LedgerStore.first_noted`."""
        with self._snapshot() as connection:
            return ledger.first_noted(connection, pool)

    def last_standing(self, pool: str, before_ns: int) -> Standing | None:
        """See `LedgerStore.last_standing`."""
        with self._snapshot() as connection:
            return ledger.last_standing(connection, pool, before_ns)

    def posting_sums(
        self, by: Sequence[str], since_ns: int, until_ns: int, filters: Mapping[str, Sequence[str]]
    ) -> tuple[PostingSum, ...]:
        """See `LedgerStore.posting_sums`."""
        question = posting_question(by, since_ns, until_ns, filters)
        with self._snapshot() as connection:
            return ledger.posting_sums(connection, question)

    def hourly_sums(
        self, by: Sequence[str], since_ns: int, until_ns: int, filters: Mapping[str, Sequence[str]]
    ) -> tuple[HourlySum, ...]:
        """See `LedgerStore.hourly_sums`."""
        question = Question(by, since_ns, until_ns, filters)
        with self._snapshot() as connection:
            return ledger.hourly_sums(connection, question)

    def reconciliations(self, since_ns: int, until_ns: int) -> tuple[Reconciliation, ...]:
        """See `LedgerStore.reconciliations`."""
        check_range(since_ns, until_ns)
        with self._snapshot() as connection:
            return ledger.reconciliations(connection, since_ns, until_ns)

    def worked(
        self,
        since_ns: int,
        until_ns: int,
        filters: Mapping[str, Sequence[str]],
        after: EndPlace | None,
        limit: int,
        looked_ns: int | None = None,
    ) -> tuple[UsageRecord, ...]:
        """See `LedgerStore.worked`."""
        question = Question((), since_ns, until_ns, filters)
        with self._snapshot() as connection:
            return ledger.worked(connection, question, after, limit, looked_ns)

    def ending(self, since_ns: int, until_ns: int, number: int) -> int | None:
        """See `LedgerStore.ending`."""
        with self._snapshot() as connection:
            return ledger.ending(connection, since_ns, until_ns, number)

    def add_reading(self, reading: Reading) -> bool:
        """See `LedgerStore.add_reading`."""
        with self._transaction(durable=True) as connection:
            return ledger.add_reading(connection, reading)

    def add_period(self, period: Period) -> None:
        """See `LedgerStore.add_period`."""
        with self._transaction(durable=True) as connection:
            ledger.add_period(connection, period)

    def periods(self) -> tuple[Period, ...]:
        """See `LedgerStore.periods`."""
        with self._snapshot() as connection:
            return ledger.periods(connection)

    def prune(self, before_ns: int, limit: int) -> int:
        """See `LedgerStore.prune`."""
        with self._transaction(durable=False) as connection:
            return ledger.prune(connection, before_ns, limit)

    def uncounted_waits(self) -> Uncounted:
        """See `WaitStore.uncounted_waits`."""
        with self._snapshot() as connection:
            return wait_rows.uncounted(SqlRows(connection))

    def count_waits(self, tiers: Mapping[str, Tier], limit: int) -> Counted:
        """See `WaitStore.count_waits`."""
        with self._transaction(durable=False) as connection:
            return wait_rows.count(SqlRows(connection), tiers, limit)

    def roll_waits(self, until_ns: int) -> bool:
        """See `WaitStore.roll_waits`."""
        with self._transaction(durable=False) as connection:
            return wait_rows.roll(SqlRows(connection), until_ns)

    def forget_waits(self, windows_before_ns: int, hours_before_ns: int) -> None:
        """See `WaitStore.forget_waits`."""
        with self._transaction(durable=False) as connection:
            wait_rows.forget(SqlRows(connection), windows_before_ns, hours_before_ns)

    def waits(self, by: Sequence[str], since_ns: int, until_ns: int, filters: Mapping[str, Sequence[str]]) -> WaitTable:
        """See `WaitStore.waits`."""
        with self._snapshot() as connection:
            return wait_rows.table(SqlRows(connection), by, since_ns, until_ns, filters)

    def judged_waits(self, since_ns: int, until_ns: int) -> Mapping[tuple[str, str], Judged]:
        """See `WaitStore.judged_waits`."""
        with self._snapshot() as connection:
            return wait_rows.judged(SqlRows(connection), since_ns, until_ns)
