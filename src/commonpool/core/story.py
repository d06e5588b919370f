"""What `core.explain` says of waits, reasons and ends, as sentences by name (`core.said`)."""

from collections.abc import Iterable

from commonpool.core import explain
from commonpool.core.explain import PARTS_SHOWN, duration, parts
from commonpool.core.model import RECALLED, STOPPED, Outcome, Reason, UsageRecord, Wait
from commonpool.core.said import Said, say
from commonpool.core.scaling import Why


def waited(wait_ns: int, waits: Iterable[Wait]) -> Said:
    """As `explain.sentence`: how long, and for what, the longest first."""
    found = parts(waits)
    if not found:
        return say("wait.alone", wait_ns=wait_ns)
    if len(found) == 1 and duration(found[0].ns) == duration(wait_ns):
        return say("wait.whole", wait_ns=wait_ns, cause=cause(found[0]))
    shown = [say("wait.part", cause=cause(part), wait_ns=part.ns) for part in found[:PARTS_SHOWN]]
    if len(found) > PARTS_SHOWN:
        shown.append(say("wait.more", count=len(found) - PARTS_SHOWN))
    return say("wait.parts", wait_ns=wait_ns, parts=tuple(shown))


def live(waits: Iterable[Wait]) -> Said:
    """As `explain.live`: that it waits, and for what so far."""
    so_far = tuple(waits)
    return say("wait.now", wait=waited(sum(wait.ns for wait in so_far), so_far))


def ended(record: UsageRecord) -> Said:
    """As `explain.ended`: what became of an attempt."""
    match record.outcome:
        case Outcome.COMPLETED if record.reason == RECALLED:
            return say("ended.recalled")
        case Outcome.CANCELLED if record.reason:
            return say("ended.for", reason=reason(record.reason))
        case Outcome.FAILED if record.reason == STOPPED:
            return say("ended.stopped")
        case Outcome.FAILED:
            return say("ended.failed", status=record.status)
        case Outcome.REFUSED:
            return say("ended.refused", reason=reason(record.reason))
        case Outcome.COMPLETED | Outcome.CANCELLED | Outcome.RUNNING:
            return say(f"ended.{record.outcome}")


def cause(wait: Wait) -> Said:
    """What a wait was for, without its length."""
    text, _, _ = explain.CAUSES[wait.cause]
    if "{}" not in text:
        return say(f"cause.{wait.cause}")
    return say(f"cause.{wait.cause}", name=wait.name or say(f"nobody.{wait.cause}"))


def loan(lender: str, milli_gpu: int) -> Said:
    """A part that is borrowed, and whose it is: a tenant's, or nobody's ("")."""
    if lender:
        return say("loan.part", lender=lender, milli_gpu=milli_gpu)
    return say("loan.part_unowned", milli_gpu=milli_gpu)


def reason(name: str) -> Said | str:
    """Why something was refused; one that is no `Reason` (a newer version wrote it) stands for itself."""
    return say(f"reason.{name}") if name in set(Reason) else name or say("reason.unknown")


def why(name: str) -> Said | str:
    """Why a model should have its replicas; one that is no `Why` stands for itself."""
    return say(f"why.{name}") if name in set(Why) else name
