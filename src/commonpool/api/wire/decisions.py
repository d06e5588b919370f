"""What the product has decided."""

import msgspec

from commonpool.core.said import Said
from commonpool.observe.decisions import Kind


class Decision(msgspec.Struct, frozen=True):
    """Something that the product decided, and why: `explanation` is one sentence, `said` the same by its name.

    `tenants` are those that it is about, of a loan the lender and the borrower. None named: all who use `model`, or,
    without a model, the platform. `subject` is a replica, a job, a model or a tenant. `node` is where, for those who
    see the whole platform. Events behind one of these are had with its `id`.
    """

    id: str
    at_ns: int
    kind: Kind
    tenants: tuple[str, ...]
    model: str
    pool: str
    subject: str
    explanation: str
    milli_gpu: int
    node: str
    said: Said | None = None


class Decisions(msgspec.Struct, frozen=True):
    """The last decisions, the newest first. `lost` is how many are not kept any more, for who sees the whole platform.

    `after` is the place behind the newest decision of all: events behind it are those that are not among these.
    """

    decisions: tuple[Decision, ...]
    lost: int
    after: str
