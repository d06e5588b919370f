"""What is wrong now: facts in, troubles out. Pure, and the one place that knows; `status` warns of the same things.

A sentence about a tenant names no other one, since its own channels are told it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from commonpool.config.quantities import format_money, format_part
from commonpool.control.nodes import Listening
from commonpool.core.alerts import MINUTE_NS, Trouble, trouble
from commonpool.core.burn import Promise
from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.core.said import say
from commonpool.core.underuse import Underuse
from commonpool.core.views import BudgetView, ModelView, PoolView, TenantView

STARVING_PERCENT: Final = 90
BEHIND_NS: Final = 2 * NS_PER_HOUR  # an hour that is not in the books so long after its beginning
DAY_NS: Final = 24 * NS_PER_HOUR
EXPIRES_NS: Final = 30 * DAY_NS  # a month to renew a certificate in, as `commonpool doctor` has it
ENDING_NS: Final = 3 * DAY_NS
BURNING: Final = {"page": "promise_burning_fast", "ticket": "promise_burning"}
NEW_BOOKS: Final = frozenset({"reconciliation_difference", "held_difference"})
AWAY: Final = ("journal_away", "store_away", "audit_away", "audit_broken", "prompts_away", "later_away")


class Waiting(msgspec.Struct, frozen=True):
    """A tenant's oldest request in the queue of a model: how long it has waited, and its max_wait."""

    tenant: str
    model: str
    pool: str
    wait_ns: int
    max_wait_ns: int


class Running(msgspec.Struct, frozen=True):
    """A replica, and the state that people are shown.

    Of the `sequences` in its engine `foreign` were not sent from here; `unread`: it used to say so, and does not now.
    """

    replica: str
    model: str
    pool: str
    state: str
    address: str = ""
    sequences: int = 0
    foreign: int = 0
    unread: bool = False


class Booked(msgspec.Struct, frozen=True):
    """The end of the last closed hour of a pool."""

    pool: str
    until_ns: int


class Ends(msgspec.Struct, frozen=True):
    """When the certificate of a listener ends, or why that cannot be said, a sentence."""

    listener: str
    ends_ns: int
    problem: str = ""


class Away(msgspec.Struct, frozen=True):
    """Why something that is kept cannot be kept now, each a sentence; "" where it can."""

    journal: str = ""
    store: str = ""
    audit: str = ""
    tampered: str = ""
    prompts: str = ""
    later: str = ""


class Failing(msgspec.Struct, frozen=True):
    """A channel that could not be told, and why, without a full stop; `tenant` is whose it is."""

    channel: str
    tenant: str
    why: str


class Facts(msgspec.Struct, frozen=True):
    """All that is known of the product now. `pools` of tenants and models are named in their views.

    `overdue` is how many milli_gpu each lender needs back that should be back. `booked` is empty until the first hour
    is closed since the start; `promises` until they were first looked at. `books` are troubles that the books have
    found themselves. `missing` are nodes that are configured and not there, `stray` holders on such ones, with pools;
    `gateways` are those of other processes than the product's own.
    """

    now_ns: int
    currency: str = ""
    tenants: Sequence[TenantView] = ()
    pools: Sequence[PoolView] = ()
    models: Sequence[ModelView] = ()
    promises: Sequence[Promise] = ()
    waiting: Sequence[Waiting] = ()
    overdue: dict[str, int] = {}
    running: Sequence[Running] = ()
    books: Sequence[Trouble] = ()
    booked: Sequence[Booked] = ()
    away: Away = Away()
    budgets: dict[str, BudgetView] = {}
    underuse: Sequence[Underuse] = ()
    missing: Sequence[tuple[str, str]] = ()  # pool, node
    stray: Sequence[tuple[str, str, str]] = ()  # pool, node, holder
    gateways: Sequence[Listening] = ()
    certificates: Sequence[Ends] = ()
    behind_ns: int = 0  # the machine's clock at the start
    failing: Sequence[Failing] = ()


def troubles(facts: Facts) -> list[Trouble]:
    """Everything that is wrong, at most once each."""
    found = [
        *_away(facts.away),
        *_clock(facts.behind_ns),
        *_books(facts),
        *_pools(facts.pools),
        *_nodes(facts),
        *_gateways(facts.gateways),
        *_models(facts.models),
        *_replicas(facts.running),
        *_engines(facts.running),
        *_promises(facts),
        *_waiting(facts.waiting),
        *_loans(facts),
        *_budgets(facts),
        *_certificates(facts),
        *_failing(facts.failing),
        *_underuse(facts.underuse),
    ]
    return list({each.id: each for each in found}.values())


def unknown(facts: Facts) -> frozenset[str]:
    """The conditions of which these facts say nothing: what was found of them before stands."""
    names = set() if facts.promises else set(BURNING.values())
    return frozenset(names if facts.booked else names | NEW_BOOKS)


def pool_of(facts: Facts) -> dict[str, str]:
    """The pool of each tenant."""
    return {each.tenant: each.pool for each in facts.tenants}


def _away(away: Away) -> Iterator[Trouble]:
    for name, sentence in zip(AWAY, msgspec.structs.astuple(away), strict=True):
        if sentence:
            yield Trouble(name, sentence)


def _clock(behind_ns: int) -> Iterator[Trouble]:
    if behind_ns:
        yield trouble("clock_behind", say("alert.clock_behind", length_ns=behind_ns))


def _books(facts: Facts) -> Iterator[Trouble]:
    yield from facts.books
    stopped = {each.pool for each in facts.books if each.name == "books_behind"}
    for each in facts.booked:
        if facts.now_ns - each.until_ns > BEHIND_NS and each.pool not in stopped:
            length_ns = (facts.now_ns - each.until_ns) // MINUTE_NS * MINUTE_NS
            said = say("alert.books_behind", pool=each.pool, length_ns=length_ns)
            yield trouble("books_behind", said, pool=each.pool)


def _pools(pools: Iterable[PoolView]) -> Iterator[Trouble]:
    for each in pools:
        if each.scaled:
            said = say("alert.guarantees_scaled", pool=each.pool, milli_gpu=each.capacity)
            yield trouble("guarantees_scaled", said, pool=each.pool)


def _nodes(facts: Facts) -> Iterator[Trouble]:
    for pool, node in facts.missing:
        said = say("alert.node_lost", node=node, pool=pool)
        yield trouble("node_lost", said, pool=pool, about=(("node", node),))
    for pool, node, holder in facts.stray:
        said = say("alert.node_stray", node=node, holder=holder)
        yield trouble("node_stray", said, pool=pool, about=(("node", node), ("holder", holder)))


def _gateways(gateways: Iterable[Listening]) -> Iterator[Trouble]:
    for each in gateways:
        if each.problem:
            said = say("alert.gateway_away", node=each.node, where=each.where, detail=each.problem)
            yield trouble("gateway_away", said, about=(("node", each.node),))


def _models(models: Iterable[ModelView]) -> Iterator[Trouble]:
    for each in models:
        if not each.ready and (each.wanted or each.broken):
            why = each.error or each.unplaced
            said = say("alert.model_starting", model=each.model)
            if why:
                said = say("alert.model_down", model=each.model, detail=why)
            yield trouble("model_down", said, pool=each.pool, about=(("model", each.model),))


def _replicas(running: Iterable[Running]) -> Iterator[Trouble]:
    for each in running:
        about = (("model", each.model), ("replica", each.replica))
        if each.state == "unknown":
            said = say("alert.engine_unknown", replica=each.replica, model=each.model)
            yield trouble("engine_unknown", said, pool=each.pool, about=about)
        elif each.state == "failing":
            said = say("alert.replica_failing", replica=each.replica, model=each.model)
            yield trouble("replica_failing", said, pool=each.pool, about=about)


def _engines(running: Iterable[Running]) -> Iterator[Trouble]:
    shared: dict[str, Running] = {}
    for each in running:
        if each.foreign:
            shared.setdefault(each.address, each)  # several replicas may be one engine
        elif each.unread and each.state == "ready":
            about = (("model", each.model), ("replica", each.replica))
            said = say("alert.engine_unread", replica=each.replica, model=each.model)
            yield trouble("engine_unread", said, pool=each.pool, about=about)
    for where, each in shared.items():
        said = say("alert.engine_shared", model=each.model, where=where, sequences=each.sequences, foreign=each.foreign)
        yield trouble("engine_shared", said, pool=each.pool, about=(("engine", where),))


def _promises(facts: Facts) -> Iterator[Trouble]:
    pools = pool_of(facts)
    for each in facts.promises:
        rule = each.burning
        if rule is None or each.tenant not in pools:
            continue
        burn = next(burn for burn in each.burns if burn.over_ns == rule.long_ns)
        said = say(
            f"alert.promise_{each.name}",
            tier=each.tier,
            tenant=each.tenant,
            length_ns=rule.long_ns,
            late=burn.late,
            promised=burn.promised,
            rate_tenths=round(10 * (burn.rate or 0)),
        )
        yield trouble(
            BURNING[rule.severity],
            said,
            tenant=each.tenant,
            pool=pools[each.tenant],
            about=(("tier", each.tier), ("promise", each.name)),
        )


def _waiting(waiting: Iterable[Waiting]) -> Iterator[Trouble]:
    for each in waiting:
        if each.wait_ns * 100 >= each.max_wait_ns * STARVING_PERCENT:
            said = say(
                "alert.starvation_near",
                tenant=each.tenant,
                model=each.model,
                wait_ns=each.wait_ns // NS_PER_S * NS_PER_S,
                max_wait_ns=each.max_wait_ns,
            )
            yield trouble(
                "starvation_near",
                said,
                tenant=each.tenant,
                pool=each.pool,
                about=(("model", each.model),),
            )


def _loans(facts: Facts) -> Iterator[Trouble]:
    pools = pool_of(facts)
    for lender, milli_gpu in facts.overdue.items():
        if lender in pools:
            said = say("alert.loan_overdue", tenant=lender, milli_gpu=milli_gpu)
            yield trouble("loan_overdue", said, tenant=lender, pool=pools[lender])


def _budgets(facts: Facts) -> Iterator[Trouble]:
    pools = pool_of(facts)
    for name, view in facts.budgets.items():
        hard = view.spent >= view.limit
        if hard or view.soft:
            condition = "budget_hard" if hard else "budget_soft"
            said = say(
                f"alert.{condition}",
                tenant=name,
                spent=format_part(view.spent, view.limit),
                budget=f"{format_money(view.limit)} {facts.currency}",
            )
            yield trouble(condition, said, tenant=name, pool=pools.get(name, ""))


def _certificates(facts: Facts) -> Iterator[Trouble]:
    for each in facts.certificates:
        about = (("listener", each.listener),)
        left_ns = each.ends_ns - facts.now_ns
        if each.problem:
            yield Trouble("certificate_ending", each.problem, about=about)
        elif left_ns < EXPIRES_NS:
            condition = "certificate_ending" if left_ns < ENDING_NS else "certificate_expires"
            key, days = f"listen.{each.listener}_tls", max(0, left_ns) // DAY_NS
            yield trouble(condition, say("alert.certificate", key=key, days=days), about=about)


def _failing(failing: Iterable[Failing]) -> Iterator[Trouble]:
    for each in failing:
        said = say("alert.channel_failing", channel=each.channel, detail=each.why)
        yield trouble("channel_failing", said, tenant=each.tenant, about=(("channel", each.channel),))


def _underuse(underused: Iterable[Underuse]) -> Iterator[Trouble]:
    for each in underused:
        yield trouble("underuse", each.said, tenant=each.tenant, pool=each.pool)
