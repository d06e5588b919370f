"""The vocabulary of alerts: what can be wrong, how bad that is, and what to do about it.

A *trouble* is something that is wrong at this moment. An *alert* is a trouble that has lasted for as long as its
condition says; from when it fires to when it is resolved is one *episode* of it.
"""

import enum
import hashlib
from typing import Final

import msgspec

from commonpool.core.english import english
from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.core.said import Said

MINUTE_NS: Final = 60 * NS_PER_S
ID_CHARS: Final = 12


class Severity(enum.StrEnum):
    """How bad it is, the worst last: to be known, to be dealt with in working hours, to wake somebody up for."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return tuple(Severity).index(self)


class Condition(msgspec.Struct, frozen=True):
    """Something that can be wrong, by name. It fires once it has been so for `for_ns`, without a break.

    It is resolved once it has not been so for `keep_ns`: what comes and goes within that is one alert. `meaning` and
    `advice` are sentences.
    """

    name: str
    severity: Severity
    for_ns: int
    keep_ns: int
    meaning: str
    advice: str


class Trouble(msgspec.Struct, frozen=True):
    """A condition that holds now, of what `about` names: label by label, such as ("pool", "main").

    `tenant` is whose it is, "" for the platform's; `pool` is the one that it is in, "" for none. `sentence` says what
    is wrong, and `said` is the same by its name, None where somebody else has said it. One that is a tenant's names no
    other tenant: its own people are told it.
    """

    name: str
    sentence: str
    tenant: str = ""
    pool: str = ""
    about: tuple[tuple[str, str], ...] = ()
    said: Said | None = None

    @property
    def id(self) -> str:
        """The same for the same condition of the same thing, at any time: hexadecimal digits."""
        whole = msgspec.json.encode((self.name, self.tenant, self.pool, self.about))
        return hashlib.sha256(whole).hexdigest()[:ID_CHARS]

    @property
    def condition(self) -> Condition:
        return CONDITIONS[self.name]


def trouble(
    name: str, said: Said, tenant: str = "", pool: str = "", about: tuple[tuple[str, str], ...] = ()
) -> Trouble:
    """A trouble that we say ourselves."""
    return Trouble(name, english(said), tenant, pool, about, said)


def _table(*conditions: Condition) -> dict[str, Condition]:
    return {each.name: each for each in conditions}


# The burn rates are those of multi-window alerts on an error budget: a page where a fiftieth of a month's is gone in an
# hour or a twentieth in six, a ticket where a tenth is gone in three days.
CONDITIONS: Final = _table(
    Condition(
        "promise_burning_fast",
        Severity.CRITICAL,
        0,
        5 * MINUTE_NS,
        "So much is late of what a tier of a tenant was promised that it matters now: 14.4 times what is allowed over 1"
        " hour and 5 minutes, or 6 times over 6 hours and 30 minutes.",
        "See what the requests wait for (`commonpool explain`), then give the tenant more, or the model more replicas.",
    ),
    Condition(
        "promise_burning",
        Severity.WARNING,
        0,
        NS_PER_HOUR,
        "More than what is allowed of what a tier of a tenant was promised is missed, over 3 days and 6 hours.",
        "Compare guarantee, demand and target of the tenant (`commonpool advise`), and correct one of them.",
    ),
    Condition(
        "starvation_near",
        Severity.WARNING,
        15 * NS_PER_S,
        MINUTE_NS,
        "The oldest waiting request of a tenant has waited for nine tenths of its max_wait or longer.",
        "See what it waits for (`commonpool explain REQUEST`): quota, a replica, or a limit.",
    ),
    Condition(
        "loan_overdue",
        Severity.WARNING,
        10 * MINUTE_NS,
        MINUTE_NS,
        "A tenant has work waiting and is under its guarantee, and what it has lent has not come back for 10 minutes.",
        "See who has it (`commonpool status`); end a job of theirs, or let it save its state (reclaim: checkpoint).",
    ),
    Condition(
        "model_down",
        Severity.CRITICAL,
        2 * MINUTE_NS,
        MINUTE_NS,
        "A model that should have a replica has none that is ready.",
        "Read why in `commonpool status`: the engine's own log, or the place that is missing.",
    ),
    Condition(
        "engine_unknown",
        Severity.WARNING,
        20 * NS_PER_S,
        MINUTE_NS,
        "A replica says that it is too busy to say how it is.",
        "Look at the engine and at its machine; a replica that goes on like that is replaced.",
    ),
    Condition(
        "engine_shared",
        Severity.WARNING,
        MINUTE_NS,
        5 * MINUTE_NS,
        "An engine has clearly more requests in it than were sent to it from here: somebody uses it past the gateway.",
        "Close the engine's address to all but the gateway; until then its promises, limits and bills do not hold.",
    ),
    Condition(
        "engine_unread",
        Severity.INFO,
        5 * MINUTE_NS,
        MINUTE_NS,
        "An engine that used to say how much it runs does not say so any more.",
        "Look at its page of metrics; work past the gateway is not noticed there meanwhile.",
    ),
    Condition(
        "replica_failing",
        Severity.WARNING,
        30 * NS_PER_S,
        2 * MINUTE_NS,
        "Attempts on a replica failed, so it gets nothing new, or one request at a time.",
        "Look at the engine's log; restart it if it does not recover by itself.",
    ),
    Condition(
        "reconciliation_difference",
        Severity.CRITICAL,
        0,
        0,
        "What was charged in the last closed hour of a pool is not what its devices were there for.",
        "Run `commonpool reconcile`, and report it: the books must close in every hour.",
    ),
    Condition(
        "held_difference",
        Severity.WARNING,
        0,
        0,
        "In the last closed hour of a pool the backends saw something else held than was given out.",
        "Run `commonpool reconcile`: its causes say where to look.",
    ),
    Condition(
        "books_behind",
        Severity.WARNING,
        0,
        0,
        "An hour of a pool cannot be closed.",
        "Do what the sentence says, such as to add a price; bills stand still until then.",
    ),
    Condition(
        "journal_away",
        Severity.CRITICAL,
        0,
        MINUTE_NS,
        "The journal cannot be written, so no request is taken in.",
        "Make room on the disk of the state folder, or see what is wrong with it.",
    ),
    Condition(
        "store_away",
        Severity.CRITICAL,
        0,
        MINUTE_NS,
        "Usage records cannot reach the store; they wait in the journal.",
        "Bring the database back. Requests go on meanwhile, for some hours.",
    ),
    Condition(
        "audit_away",
        Severity.CRITICAL,
        0,
        MINUTE_NS,
        "The audit log cannot be written, so nothing can be changed.",
        "Bring the database back.",
    ),
    Condition(
        "audit_broken",
        Severity.CRITICAL,
        0,
        0,
        "Somebody else has written in the audit log.",
        "Find out who can write to the store, and verify the log against the heads that you keep (`commonpool audit`).",
    ),
    Condition(
        "prompts_away",
        Severity.WARNING,
        0,
        MINUTE_NS,
        "The prompt logs that tenants keep cannot be written.",
        "Bring the database or the master key back; what there is no room for in memory is lost to them.",
    ),
    Condition(
        "later_away",
        Severity.WARNING,
        0,
        MINUTE_NS,
        "What is to be answered later, or was, cannot be kept or read.",
        "Bring the database or the master key back; what was taken stays taken.",
    ),
    Condition(
        "budget_soft",
        Severity.WARNING,
        0,
        0,
        "A tenant has spent the part of its budget at which it wants to know.",
        "Raise the budget, or let it use less.",
    ),
    Condition(
        "budget_hard",
        Severity.CRITICAL,
        0,
        0,
        "A tenant has spent its budget, so what it asks for is refused.",
        "Raise the budget, or wait for the end of the month.",
    ),
    Condition(
        "guarantees_scaled",
        Severity.WARNING,
        0,
        0,
        "More is guaranteed in a pool than is there, so every guarantee is scaled down pro rata.",
        "Bring the missing devices back, or guarantee less.",
    ),
    Condition(
        "underuse",
        Severity.INFO,
        0,
        0,
        "Less than half of a tenant's guarantee was wanted for three days or longer.",
        "Release what is offered (`commonpool release`), or guarantee less.",
    ),
    Condition(
        "node_lost",
        Severity.CRITICAL,
        30 * NS_PER_S,
        MINUTE_NS,
        "A node that is configured is not there.",
        "Bring it back, or take it out of the configuration.",
    ),
    Condition(
        "node_stray",
        Severity.WARNING,
        0,
        MINUTE_NS,
        "Something still runs on a node that is not there any more.",
        "End it on that node, or bring the node back.",
    ),
    Condition(
        "gateway_away",
        Severity.CRITICAL,
        30 * NS_PER_S,
        MINUTE_NS,
        "The gateway of a node does not listen, so clients that use it are not served.",
        "See what else listens there, and what Ray logs on that node; other gateways serve meanwhile.",
    ),
    Condition(
        "clock_behind",
        Severity.WARNING,
        0,
        0,
        "The machine's clock was behind what was noted last when the product started.",
        "Set the clock, then start the product again.",
    ),
    Condition(
        "certificate_expires",
        Severity.WARNING,
        0,
        0,
        "A listener's certificate ends within 30 days.",
        "Renew it in place; the product takes the new one up within seconds.",
    ),
    Condition(
        "certificate_ending",
        Severity.CRITICAL,
        0,
        0,
        "A listener's certificate ends within 3 days, or has ended.",
        "Renew it in place, now; clients refuse the listener afterwards.",
    ),
    Condition(
        "channel_failing",
        Severity.WARNING,
        5 * MINUTE_NS,
        0,
        "Alerts cannot be delivered by one of the channels.",
        "See why in `commonpool alerts list`, and try it with `commonpool alerts test`; what is due is sent once it can"
        " be.",
    ),
)
