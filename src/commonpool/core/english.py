"""What is said, in English: the words of every sentence that `core.said` can name.

The words of causes, reasons and the whys of scaling are `core.explain`'s.
"""

from typing import Final

from commonpool.core import explain
from commonpool.core.model import MILLI_PER_GPU
from commonpool.core.said import Said, Value, fill

SENTENCES: Final[dict[str, str]] = {
    # Several, one after the other, and names among what is said.
    "clauses": "{clauses}",
    "name": "{name}",
    # Loans.
    "loan.of_tenant": "{borrower} borrows {milli_gpu} of {lender}'s guarantee, which lies idle",
    "loan.of_unowned": "{borrower} borrows {milli_gpu} of the unowned part of {pool}, which is guaranteed to nobody",
    "loan.due": "{lender} has work waiting and needs back what {borrower} borrows: what frees next goes to {lender}",
    "loan.back_to_tenant": "{borrower} has given back what it borrowed of {lender}'s guarantee: {milli_gpu} at most, "
    "for {length_ns}",
    "loan.back_to_unowned": "{borrower} has given back what it borrowed of the unowned part of {pool}: {milli_gpu} at "
    "most, for {length_ns}",
    "loan.part": "{milli_gpu} of {lender}",
    "loan.part_unowned": "{milli_gpu} of the unowned part",
    # Quotas.
    "quota.scaled": "the guarantees in {pool} exceed its {milli_gpu}, so each is cut pro rata",
    "quota.granted": "{tenant} may use {milli_gpu} for {length_ns}, by a grant",
    "quota.grant_over": "the grant of {tenant} is over: it may use {milli_gpu} again",
    "quota.released": "{tenant} has released {milli_gpu} of its guarantee, which others may use",
    "quota.taken_back": "{tenant} has its whole guarantee again: what it had released is taken back",
    "quota.configured": "revision {revision} of the configuration is in force",
    "quota.new_tenant": "{tenant} is a tenant of {pool} now, with {milli_gpu} guaranteed",
    "quota.changed": "{tenant} has another quota: {changes}",
    "quota.change": "{field} {new_milli_gpu} instead of {old_milli_gpu}",
    "quota.gone": "{tenant} is no tenant any more: nothing new of it is taken",
    # Jobs.
    "job.starts": "job {job} of {tenant} starts on {milli_gpu}",
    "job.borrows": "of which it borrows {loans}",
    "job.waited": "after it waited {wait_ns}",
    "job.asked": "job {job} of {tenant} is asked to save its state within {length_ns} and to wait again, since "
    "{lenders} needs back what it borrows",
    "job.its_lender": "its lender",
    # Models and their replicas.
    "model.wanted": "{model} should have {replicas} instead of {before}: {why}",
    "model.no_replica": "no replica",
    "model.one_replica": "1 replica",
    "model.replicas": "{count} replicas",
    "model.none_before": "none",
    "model.starts": "replica {replica} of {model} starts on {milli_gpu}",
    "model.serves": "replica {replica} of {model} serves on {milli_gpu}",
    "model.drains": "replica {replica} of {model} gets nothing new and ends when what runs on it has ended: {why}",
    "model.ended": "replica {replica} of {model} has ended, and its {milli_gpu} are free",
    "model.lost": "replica {replica} of {model} is lost, so its requests go elsewhere: {detail}",
    "model.unplaced": "no place for one more replica of {model}: {detail}",
    "model.startable": "replicas of {model} can be started again",
    "model.broken": "no replica of {model} could be started several times in a row, so that is tried seldom now: "
    "{detail}",
    "model.circuit_opens": "replica {replica} of {model} gets nothing new for now: too many requests failed on it",
    "model.circuit_closes": "replica {replica} of {model} gets requests again: one that was tried has succeeded",
    "model.fallback": "{fallback} answers requests of {tenant} for {model}, which cannot serve them in time",
    "model.fallback_over": "{model} serves {tenant} by itself again: {fallback} answered {count} of its requests",
    "model.its_fallback": "its fallback",
    # Waits.
    "wait.alone": "{wait_ns}",
    "wait.whole": "{wait_ns}: {cause}",
    "wait.parts": "{wait_ns}: {parts}",
    "wait.part": "{cause} {wait_ns}",
    "wait.more": "{count} more",
    "wait.now": "waiting for {wait}",
    # The life of a request.
    "step.arrived": "it came for {model}",
    "step.arrived_job": "it came for devices",
    "step.waited": "it waited {wait}; {crowd}",
    "step.waits": "it is waiting for {wait}; {crowd}",
    "step.none_waited": "when it came nobody waited",
    "step.some_waited": "when it came {own} of its tenant and {others} of others waited",
    "step.served": "and {served} of others were served meanwhile",
    "step.on_replica": "it started on {replica}",
    "step.on_gpus": "it started on {milli_gpu}",
    "step.borrowed": "and borrowed {loans}",
    "step.first_token": "its first token came {length_ns} after it arrived",
    "ended.recalled": "completed, with what its tenant was answered before",
    "ended.completed": "completed",
    "ended.for": "ended, {reason}",
    "ended.cancelled": "cancelled, its client went away",
    "ended.stopped": "ended with the product, which was stopped",
    "ended.failed": "failed with status {status}",
    "ended.refused": "refused, {reason}",
    "ended.running": "running",
    "reason.unknown": "the reason is not known",
    # What quota says of work that is only asked about.
    "allowance.waits": "It would wait: {cause}.",
    "allowance.own": "It is within the guarantee of tenant {tenant}.",
    "allowance.borrows": "Tenant {tenant} would borrow {milli_gpu}: {loans}.",
    # Alerts, by their conditions.
    "alert.clock_behind": "The machine's clock was {length_ns} behind what was noted last when the product started, so "
    "its times go on from there: set the clock, then start the product again.",
    "alert.books_behind": "The books of pool {pool} are {length_ns} behind.",
    "alert.guarantees_scaled": "More is guaranteed in pool {pool} than the {milli_gpu} that are there, so the "
    "guarantees are scaled down pro rata.",
    "alert.node_lost": "Node {node} of pool {pool} is not there.",
    "alert.node_stray": "Node {node} is not there any more, and {holder} still runs on it.",
    "alert.gateway_away": "The gateway of node {node}, at {where}, serves nobody: {detail}.",
    "alert.model_down": "No replica of model {model} is ready. {detail}",
    "alert.model_starting": "No replica of model {model} is ready. It has not started yet.",
    "alert.engine_unknown": "Replica {replica} of model {model} says that it is too busy to say how it is.",
    "alert.engine_shared": "The engine of model {model} at {where} has {sequences} requests in it, and {foreign} of "
    "them were not sent from here: somebody uses it past the gateway.",
    "alert.engine_unread": "The engine of replica {replica} of model {model} does not say any more how much it runs.",
    "alert.replica_failing": "Attempts on replica {replica} of model {model} failed, so it gets little or nothing.",
    "alert.promise_queue": "Of what tier {tier} of tenant {tenant} was promised in the queue in the last {length_ns}, "
    "{late} of {promised} were late: {rate_tenths} times what is allowed.",
    "alert.promise_first_token": "Of what tier {tier} of tenant {tenant} was promised before the first token in the "
    "last {length_ns}, {late} of {promised} were late: {rate_tenths} times what is allowed.",
    "alert.starvation_near": "The oldest request of tenant {tenant} for model {model} has waited for {wait_ns}, of a "
    "max_wait of {max_wait_ns}.",
    "alert.loan_overdue": "Tenant {tenant} has work waiting and is under its guarantee, and {milli_gpu} that it has "
    "lent should be back.",
    "alert.budget_hard": "Tenant {tenant} has spent {spent} of its budget of {budget} this month, so what it asks for "
    "is refused until the month is over, or the budget is raised.",
    "alert.budget_soft": "Tenant {tenant} has spent {spent} of its budget of {budget} this month; what exceeds that "
    "will be refused: raise it, or let it use less.",
    "alert.certificate": "The certificate of {key} ends in {days} days; renew it in place.",
    "alert.channel_failing": "Alerts cannot be delivered by channel {channel}: {detail}.",
    "alert.underuse": "Tenant {tenant} has wanted {peak_milli_gpu} at most for {days} days, of {milli_gpu} guaranteed; "
    "`commonpool release {tenant}` would give {offered_milli_gpu} to everybody.",
    "alert.reconciliation_difference": "The books of pool {pool} do not close: {charged} milli_gpu_ns are charged and "
    "{devices} were there; `commonpool reconcile` shows the hour.",
    "alert.held_difference": "In pool {pool} the backends saw something else held than was given out, of {holders}; "
    "`commonpool reconcile` shows the hour.",
    "alert.and_others": "others",
    # Notes of a bill.
    "note.behind": "The books of pool {pool} stop at {at}; `commonpool status` says why.",
    "note.readings_behind": "The books of what is of no pool stop at {at}; `commonpool status` says why.",
    "note.file_wins": "Started with {file}; revision {revision}, applied to the running product, was different. Put "
    "its changes into the file to keep them.",
    "note.no_later": "Nothing is answered later on a Ray cluster, so `queue.later` of {tenants} has no effect: what "
    "cannot be served in time is refused.",
    "note.before": "There are no books of it: they began on {at}.",
    "note.future": "This period has not begun: it begins at {at}, and is billed hour by hour from then on.",
    "note.first": "A bill is made of whole hours, and the first one of this period is in it soon after {at}.",
    # Advice.
    "advice.waits": "One task in a hundred waits {wait_ns} or longer, so its cap is raised to its peak: {use}.",
    "advice.less": "A part of its guarantee of {milli_gpu} lies idle or belongs to borrowers: {use}.",
    "advice.more": "Its guarantee of {milli_gpu} is less than what it lives on: {use}.",
    "advice.lower_cap": "It has never come near its cap of {milli_gpu}, or would hold up others there: {use}.",
    "advice.higher_cap": "There is room above its cap of {milli_gpu}: {use}.",
    "advice.so": "By its use: {use}.",
    "advice.use": "it wants {usual_milli_gpu} at most half of the time and {high_milli_gpu} in 95 of 100 intervals",
    "finding.low_use": "Model {model} uses {percent} % of its {replicas} replica(s) on average and {milli_gpu} at most:"
    " {needed} would do.",
    "finding.over_sized": "Model {model} uses {percent} % of its {replicas} replica(s) on average and {milli_gpu} at "
    "most: half of its slots, KV memory and GPUs would do.",
    "finding.retries": "Of {attempts} attempts of tenant {tenant} {failed} failed; find out why.",
    "finding.expensive": "A token of tenant {tenant} takes {times_tenths} times the GPU time of the median tenant's; "
    "look at its model, its n and its context.",
    # What `core.explain` has words for.
    **{f"cause.{cause}": text.replace("{}", "{name}") for cause, (text, _, _) in explain.CAUSES.items()},
    **{f"nobody.{cause}": nobody for cause, (text, nobody, _) in explain.CAUSES.items() if "{}" in text},
    **{f"cause_advice.{cause}": advice for cause, (_, _, advice) in explain.CAUSES.items()},
    **{f"reason.{reason}": words.text for reason, words in explain.REASONS.items()},
    **{f"why.{why}": text for why, text in explain.WHYS.items()},
}


def english(said: Said) -> str:
    """The sentence. Raises KeyError for a name or a value that there is not."""
    return fill(SENTENCES[said.name], said.values, _shown)


def _shown(name: str, value: Value) -> str:  # noqa: PLR0911 - one for each kind of value
    match value:
        case Said():
            return english(value)
        case tuple():
            return ", ".join(map(english, value))
        case str():
            return value
        case _ if name.endswith("milli_gpu"):
            whole, rest = divmod(value, MILLI_PER_GPU)
            return f"{whole}.{rest:03d}".rstrip("0").rstrip(".") + " gpu"
        case _ if name.endswith("_ns"):
            return explain.duration(value)
        case _ if name.endswith("_tenths"):
            return f"{value // 10:,}.{value % 10}"
        case _:
            return f"{value:,}"
