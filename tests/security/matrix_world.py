"""A product in which two tenants have one of everything, those who call it, and a valid call of every route."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.types import ASGIApp

from commonpool.access.callers import Binding, Caller, by_admin_key, by_data_key
from commonpool.access.sessions import name_of
from commonpool.api import routes
from commonpool.api.wire import status as wire
from commonpool.core.alerts import Trouble
from commonpool.core.firing import Episode
from commonpool.core.model import Hardware, Job, Loan, LoanEnd
from commonpool.core.telling import Silence
from commonpool.core.underuse import Underuse
from commonpool.observe.decisions import Decision
from commonpool.store.accounts import Session
from commonpool.store.alerts import KeptEpisode
from commonpool.store.audit import AuditEntry
from commonpool.store.contract import Key
from commonpool.store.jobs import JobRecord, Task
from commonpool.store.memory import MemoryStore
from commonpool.store.prompts import PromptHead, Spoken
from commonpool.store.releases import Release
from tests.api.books import HOUR, at, billed, keep, work
from tests.api.fakes import TENANT, FakeOperations, sources

OWN, FOREIGN, THIRD = "support", "research", "archive"
APPS = {OWN: "helpdesk", FOREIGN: "papers"}
PASSWORD = "a long enough one"
YAML = f"""
pools:
  main: {{gpus: 4_gpu}}
models:
  echo:
    version: v1
    gpu: 2_gpu
    slots: 4
    context: 2048
    engine: {{kind: attached, urls: ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]}}
prices:
  currency: EUR
  time_zone: Europe/Berlin
  gpu_hour: {{main: 2.50}}
  meters: {{request: 0.000001, storage_gib_hour: 0.01}}
jobs: {{submitters: tenants}}
alerts: {{channels: {{ops: {{kind: webhook, url: "http://127.0.0.1:9/"}}}}}}
tenants:
  {OWN}:
    tenant: {{guaranteed: 2_gpu, elastic_cap: 3_gpu, hard_cap: 4_gpu}}
    apps: {{{APPS[OWN]}: {{}}}}
  {FOREIGN}:
    tenant: {{guaranteed: 1_gpu, elastic_cap: 3_gpu, hard_cap: 4_gpu}}
    apps: {{{APPS[FOREIGN]}: {{}}}}
  {THIRD}:
    tenant: {{elastic_cap: 4_gpu}}
"""
NOW = "2027-01-02 00:30"
BEFORE = at("2027-01-01 12:00")


SESSION = Session(bytes(range(32)), at(NOW), at(NOW), at(NOW) + HOUR, "ann")


class Things(msgspec.Struct, frozen=True):
    """What a tenant has, by name, and the session of a person; of nobody's there is none."""

    tenant: str
    app: str
    job: str
    request: str
    key: str
    note: str
    session: str = name_of(SESSION)

    @property
    def markers(self) -> tuple[str, ...]:
        """What is in no answer to somebody who may not know of them."""
        return self.tenant, self.app, self.job, self.request, self.key, self.note


def things(tenant: str) -> Things:
    app = APPS.get(tenant, "default")
    return Things(
        tenant, app, f"job-{tenant}", f"request-{tenant}", f"key{tenant}"[:10].ljust(10, "0"), f"note-{tenant}"
    )


UNKNOWN = Things("nobody", "default", "job-nobody", "request-nobody", "0000000000", "", "0" * 16)


def _store() -> MemoryStore:
    """What both tenants have, an account, and books of a month that is over."""
    product = billed(YAML, NOW)
    keep(product, "2026-12-31 20:00", "2027-01-02 00:00", [_record(OWN), _record(FOREIGN)])
    store = product.store
    for tenant in (OWN, FOREIGN):
        own = things(tenant)
        job = Job(own.job, tenant, own.app, "main", "batch", 1000, hardware=Hardware(1000))
        store.add_job(JobRecord(job, Task(("train",), "/home", name=own.note), BEFORE, BEFORE))
        store.add_key(Key(own.key, b"", b"", "data", tenant, own.app, BEFORE, note=own.note))
        store.add_release(Release(tenant, 100, BEFORE, "local", own.note))
        store.save_alerts([KeptEpisode(Episode(over_budget(tenant), BEFORE, BEFORE, BEFORE))])
        for whose in ("", tenant):
            store.save_silence(Silence(alert(tenant), whose, at(NOW) + HOUR, "local"))
        store.add_audit([AuditEntry(BEFORE, BEFORE, 1, "local", "grant", tenant, "allowed", path=own.note)])
    ann = asyncio.run(product.people().accounts.add("ann", "person", PASSWORD, ""))
    store.add_session(msgspec.structs.replace(SESSION, account_changed_ns=ann.changed_ns), 0, 9)
    asyncio.run(_keep_prompts(product))
    return store


def over_budget(tenant: str) -> Trouble:
    return Trouble("budget_hard", f"Tenant {tenant} has spent its budget.", tenant=tenant, pool="main")


def alert(tenant: str) -> str:
    """The id of what is wrong with a tenant's things; of nobody's there is none."""
    return over_budget(tenant).id


async def _keep_prompts(product: FakeOperations) -> None:
    """The prompt log of each has what its request asked, and was answered."""
    for tenant in (OWN, FOREIGN):
        own = things(tenant)
        await product.prompts().switch_on(tenant, 30 * 24 * HOUR, "local")
        head = PromptHead(tenant, BEFORE, own.request, own.app, "echo", "chat", 0)
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine"
        product.prompts().hear(Spoken(head, own.note.encode(), answer, cut=False, gone=False))
    await product.prompts().write()


def _record(tenant: str) -> Any:
    """Work of each that borrowed from a third one, so that none is on the other side of the other's loan."""
    own = things(tenant)
    ended = at("2026-12-31 22:30")
    loans = (Loan(THIRD, tenant, own.request, 500, ended - HOUR // 2, ended, LoanEnd.TASK_DONE),)
    return msgspec.structs.replace(
        work(own.request, ended, HOUR // 2, tenant=tenant, app=own.app, cost_center="", milli_gpu=1000), loans=loans
    )


BASE = _store()


def world() -> FakeOperations:
    """A product in which nothing was done yet."""
    product = FakeOperations(copy.deepcopy(BASE))
    product.configure(sources(YAML))
    product.now = at(NOW)
    product.tenants = tuple(msgspec.structs.replace(TENANT, name=tenant) for tenant in (OWN, FOREIGN, THIRD))
    product.loans_now = tuple(wire.LoanStatus(THIRD, tenant, 100, 1, BEFORE, due=False) for tenant in (OWN, FOREIGN))
    for tenant in (OWN, FOREIGN):
        said = f"{tenant} has another quota, says {things(tenant).note}"
        product.fake_feed.decisions.add(Decision(BEFORE, "quota", said, (tenant,), subject=tenant))
    product.wait_books.look()
    product.fake_feed.close()  # so that whoever listens has what there is, and no more
    product.underused = tuple(Underuse(tenant, "main", 2000, 80, 100, 20, 500, 500) for tenant in (OWN, FOREIGN))
    product.callers = {f"Bearer {name}".encode(): caller for name, caller in CALLERS.items()}
    return product


def untouched(product: FakeOperations) -> bool:
    """Whether nothing was done, but for what is in the audit log, and for counting of what is stored anyway."""
    now, before = vars(product.store), vars(BASE)
    kept = all(now[name] == before[name] for name in before if name not in {"_audit", "_waits"})
    return kept and not product.granted and not product.applied


def application(product: FakeOperations) -> ASGIApp:
    return routes.application(product)


CALLERS: dict[str, Caller] = {
    "platform-admin": by_admin_key("k1"),
    "operator": by_admin_key("k2", "operator"),
    "finance": by_admin_key("k3", "finance"),
    "viewer": by_admin_key("k4", "viewer"),
    "auditor": by_admin_key("k5", "auditor"),
    "tenant-admin": by_admin_key("k6", "tenant-admin", OWN),
    "developer": by_admin_key("k7", "developer", OWN),
    "viewer in a tenant": by_admin_key("k8", "viewer", OWN),
    "app": by_data_key("k9", OWN, APPS[OWN]),
    "no role": Caller("account:new", "person", ()),
    # so that what is foreign to the others is shown to be there
    "tenant-admin elsewhere": Caller("account:far", "person", (Binding("tenant-admin", FOREIGN),)),
}


class Call(msgspec.Struct, frozen=True):
    """How a route is called about some things. `shows`: an answer about several tenants names each of them.

    `status` is what who may do it is answered where that is no success, and `says` what else.
    """

    path: dict[str, str] = {}
    query: dict[str, str] = {}
    body: dict[str, Any] | None = None
    shows: bool = True
    status: int = 0
    says: str = ""


def _configuration(_: Things) -> Call:
    return Call(body={"sources": {"main": "c.yaml", "files": {"c.yaml": YAML}}})


def _account(body: dict[str, Any] | None = None) -> Callable[[Things], Call]:
    return lambda _: Call(path={"name": "ann"}, body=body)


PERIOD = {"since_ns": "0"}
# A valid call of each route about these things, which need not be there.
CALLS: dict[tuple[str, str], Callable[[Things], Call]] = {
    ("GET", "/healthz"): lambda _: Call(),
    ("GET", "/readyz"): lambda _: Call(),
    ("GET", "/openapi.json"): lambda _: Call(),
    ("GET", "/docs"): lambda _: Call(),
    ("GET", "/docs.css"): lambda _: Call(),
    ("GET", "/admin/v1/status"): lambda _: Call(),
    ("GET", "/admin/v1/tenants"): lambda _: Call(),
    ("GET", "/admin/v1/tenants/{tenant}"): lambda of: Call(path={"tenant": of.tenant}),
    ("GET", "/admin/v1/models"): lambda _: Call(shows=False),
    ("GET", "/admin/v1/decisions"): lambda _: Call(),
    ("GET", "/admin/v1/events"): lambda _: Call(query={"after": ""}),
    ("GET", "/admin/v1/replicas"): lambda _: Call(),
    ("GET", "/admin/v1/underuse"): lambda _: Call(),
    ("GET", "/admin/v1/releases"): lambda _: Call(),
    ("POST", "/admin/v1/releases"): lambda of: Call(body={"tenant": of.tenant, "milli_gpu": 100}),
    ("POST", "/admin/v1/releases/{tenant}/undo"): lambda of: Call(path={"tenant": of.tenant}),
    ("GET", "/admin/v1/alerts"): lambda _: Call(),
    ("POST", "/admin/v1/alerts/test"): lambda _: Call(body={"channel": "ops"}),
    ("POST", "/admin/v1/alerts/{id}/silence"): lambda of: Call(
        path={"id": alert(of.tenant)}, body={"until_ns": at(NOW) + HOUR}
    ),
    ("DELETE", "/admin/v1/alerts/{id}/silence"): lambda of: Call(path={"id": alert(of.tenant)}),
    ("POST", "/admin/v1/grants"): lambda of: Call(
        body={"tenant": of.tenant, "elastic_cap_milli_gpu": 3500, "for_ns": HOUR}
    ),
    ("POST", "/admin/v1/grants/{tenant}/end"): lambda of: Call(path={"tenant": of.tenant}),
    ("GET", "/admin/v1/nodes"): lambda _: Call(),
    ("POST", "/admin/v1/place"): lambda of: Call(body={"tenant": of.tenant, "hardware": {"milli_gpu": 1000}}),
    ("GET", "/admin/v1/hints"): lambda _: Call(),
    ("GET", "/admin/v1/advice"): lambda _: Call(),
    ("GET", "/admin/v1/usage"): lambda _: Call(query=PERIOD),
    ("GET", "/admin/v1/waits"): lambda _: Call(query={**PERIOD, "by": "tenant,model,tier"}),
    ("GET", "/admin/v1/promises"): lambda _: Call(),
    ("GET", "/admin/v1/records"): lambda _: Call(query=PERIOD),
    ("GET", "/admin/v1/loans/open"): lambda _: Call(),
    ("GET", "/admin/v1/loans"): lambda _: Call(query=PERIOD),
    ("GET", "/admin/v1/requests/{id}"): lambda of: Call(path={"id": of.request}),
    ("GET", "/admin/v1/requests/{id}/timeline"): lambda of: Call(path={"id": of.request}),
    ("GET", "/admin/v1/requests/{id}/postings"): lambda of: Call(path={"id": of.request}),
    ("GET", "/admin/v1/tenants/{tenant}/prompts"): lambda of: Call(path={"tenant": of.tenant}),
    ("GET", "/admin/v1/tenants/{tenant}/prompts/{id}"): lambda of: Call(path={"tenant": of.tenant, "id": of.request}),
    ("POST", "/admin/v1/tenants/{tenant}/prompts/on"): lambda of: Call(path={"tenant": of.tenant}, body={}),
    ("POST", "/admin/v1/tenants/{tenant}/prompts/off"): lambda of: Call(path={"tenant": of.tenant}),
    ("DELETE", "/admin/v1/tenants/{tenant}/prompts"): lambda of: Call(path={"tenant": of.tenant}),
    ("DELETE", "/admin/v1/tenants/{tenant}/prompts/{id}"): lambda of: Call(
        path={"tenant": of.tenant, "id": of.request}
    ),
    ("GET", "/admin/v1/bill"): lambda _: Call(query={"period": "2026-12"}),
    ("GET", "/admin/v1/bill/matrix"): lambda _: Call(query={"period": "2026-12"}),
    ("GET", "/admin/v1/bill/records"): lambda _: Call(query={"period": "2026-12"}),
    ("GET", "/admin/v1/periods"): lambda _: Call(shows=False),
    ("POST", "/admin/v1/periods"): lambda _: Call(body={"name": "2026-12"}),
    ("GET", "/admin/v1/reconciliation"): lambda _: Call(query=PERIOD),
    ("POST", "/admin/v1/readings"): lambda of: Call(
        body={"id": "r", "meter": "storage_gib_hour", "tenant": of.tenant, "quantity": 1, "app": of.app}
        | {"start_ns": BEFORE, "end_ns": BEFORE + 1}
    ),
    ("GET", "/admin/v1/jobs"): lambda _: Call(),
    ("POST", "/admin/v1/jobs"): lambda of: Call(
        body={"command": ["train"], "cwd": "/home", "hardware": {"milli_gpu": 1000}, "tenant": of.tenant, "app": of.app}
    ),
    ("GET", "/admin/v1/jobs/{id}"): lambda of: Call(path={"id": of.job}),
    ("GET", "/admin/v1/jobs/{id}/log"): lambda of: Call(path={"id": of.job}),
    ("POST", "/admin/v1/jobs/{id}/cancel"): lambda of: Call(path={"id": of.job}),
    ("GET", "/admin/v1/keys"): lambda _: Call(),
    ("POST", "/admin/v1/keys"): lambda of: Call(body={"tenant": of.tenant, "app": of.app}),
    ("POST", "/admin/v1/keys/{id}/revoke"): lambda of: Call(path={"id": of.key}),
    ("POST", "/admin/v1/keys/{id}/rotate"): lambda of: Call(path={"id": of.key}, body={}),
    ("GET", "/admin/v1/accounts"): lambda _: Call(),
    ("POST", "/admin/v1/accounts"): lambda _: Call(body={"name": "bob", "password": PASSWORD}),
    ("POST", "/admin/v1/accounts/{name}/password"): _account({"password": PASSWORD}),
    ("POST", "/admin/v1/accounts/{name}/disable"): _account(),
    ("POST", "/admin/v1/accounts/{name}/enable"): _account(),
    ("DELETE", "/admin/v1/accounts/{name}"): _account(),
    ("GET", "/admin/v1/config"): lambda _: Call(),
    ("GET", "/admin/v1/policies"): lambda _: Call(),
    ("POST", "/admin/v1/config/diff"): _configuration,
    ("POST", "/admin/v1/config/apply"): _configuration,
    ("POST", "/admin/v1/secrets/rotate"): lambda _: Call(),
    ("GET", "/admin/v1/audit"): lambda _: Call(),
    ("GET", "/admin/v1/audit/verify"): lambda _: Call(),
    ("GET", "/metrics"): lambda _: Call(),
    ("POST", "/admin/v1/sessions"): lambda _: Call(body={"name": "ann", "password": PASSWORD}),
    ("GET", "/admin/v1/sessions"): lambda _: Call(says="account:ann"),
    ("DELETE", "/admin/v1/sessions/{session}"): lambda about: Call(path={"session": about.session}),
    ("GET", "/admin/v1/me/sessions"): lambda _: Call(says='"sessions":[]'),  # nobody here comes with one
    ("DELETE", "/admin/v1/me/sessions/{session}"): lambda about: Call(
        path={"session": about.session}, status=404, says="you have no session"
    ),
    ("GET", "/admin/v1/me"): lambda _: Call(),
    ("POST", "/admin/v1/me/password"): lambda _: Call(
        body={"current": PASSWORD, "new": f"{PASSWORD} more"}, status=401, says="only who is logged in to an account"
    ),
    ("DELETE", "/admin/v1/sessions/current"): lambda _: Call(),
}
