"""What the admin API says of waits and promises. Times in nanoseconds; counts are of attempts at requests."""

import msgspec

from commonpool.core.burn import Kept, Promise
from commonpool.core.waits import Spread


class WaitRow(msgspec.Struct, frozen=True):
    """One line; `group` has one value per name in `by`, and none in the total. `start_ns` is of its time, where `by`
    has one.

    `completed`, `failed` and `cancelled` ran, `abandoned` ones left while they waited, `refused` are counted by reason.
    `wait` is of those that ran, `first_token` of those with a first token, from arrival; `unserved` is how long those
    waited that left, or that were refused after they had waited. `queue` and `first_token_promise` are how the tiers'
    targets were kept.
    """

    group: tuple[str, ...]
    start_ns: int | None
    completed: int
    failed: int
    cancelled: int
    abandoned: int
    refused: dict[str, int]
    wait: Spread
    first_token: Spread
    unserved: Spread
    queue: Kept
    first_token_promise: Kept


class WaitTable(msgspec.Struct, frozen=True):
    """What ended in [since_ns, until_ns), which begins and ends with a window of ten minutes, or with what is kept of
    that time. Rows add up to `total`.

    `complete` is False while a backlog of records is being counted, as after an upgrade, and while the store cannot be
    written. What ended before `counted_until_ns` is in it then, but for what was heard of late; at most `left_records`
    are not. Those are of everybody: None for who may not know of all.
    """

    by: tuple[str, ...]
    since_ns: int
    until_ns: int
    complete: bool
    rows: tuple[WaitRow, ...]
    total: WaitRow
    counted_until_ns: int | None = None
    left_records: int | None = None


class Promises(msgspec.Struct, frozen=True):
    """The promises of tenants as they stood at `at_ns`; 0: they were not looked at yet.

    So many thousandths of those that are promised something are to get it.
    """

    at_ns: int
    objective_permille: int
    promises: tuple[Promise, ...]
