"""The law of the books: what is closed by the hour is what each instant would have said, added up.

Random worlds run; `split` says at every instant whose each milli_gpu is. Records and standings alone go to `close`.
"""

from collections import Counter
from collections.abc import Iterator

from commonpool.core.closing import charged, close, devices
from commonpool.core.ledger import PLATFORM, Hour, Kind, Posting, Rates, Standing, hour_of
from commonpool.core.model import NS_PER_HOUR
from commonpool.core.quota import Quota
from commonpool.core.settling import hours_of, parts
from tests.core.laws import GPUS, Choose, Commons, thorough
from tests.core.splits import Split, split
from tests.core.worlds import S

OFFSET = 97 * S + 1  # so that hours end while things run
RATES = Rates(2_500_000, 2_000_000)
WORKED = (Kind.USED, Kind.UNCHARGED, Kind.BORROWED)


class Books(Commons):
    """Integrals over time of what `split` says, by pool, and whether a promise was ever cut under what ran in it."""

    def __init__(self) -> None:
        super().__init__()
        self.standings: dict[str, list[Standing]] = {pool: [] for pool in GPUS}
        self.said: dict[str, Counter[tuple[str, str]]] = {pool: Counter() for pool in GPUS}
        self.cut: set[str] = set()

    def pass_time(self, ns: int) -> None:
        now = self.world.now
        for pool, quota in self.machine.state.quotas.items():
            self.standings[pool] += standings(quota, now, now + ns)
            loans = self.machine.state.loans[pool]
            for key, milli_gpu in spoken(split(quota, loans)):
                self.said[pool][key] += milli_gpu * ns
            for loan in loans.open_loans():
                lender = PLATFORM if not loan.lender else f"tenant:{loan.lender}"
                lender = f"group:{loan.lender}" if loan.lender in quota.groups else lender
                self.said[pool]["lent", lender] += loan.milli_gpu * ns
            over_quota = sum(node.over_guarantee - loans.borrowed(name) for name, node in quota.tenants.items())
            if over_quota or loans.lent("") > quota.unowned or quota.use > quota.capacity:
                self.cut.add(pool)
        super().pass_time(ns)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.pass_time(S)
        self.finish()
        for pool in GPUS:
            self.hours_are_what_instants_say(pool)

    def hours_are_what_instants_say(self, pool: str) -> None:
        postings: list[Posting] = []
        for hour in self.hours(pool):
            closed = close(hour)
            postings += closed
            assert charged(closed) >= devices(hour)
            assert charged(closed) == devices(hour) or pool in self.cut
            assert all(posting.quantity > 0 for posting in closed)
        found: Counter[tuple[str, str]] = Counter()
        for posting in postings:
            if posting.kind in WORKED:
                found["used", f"tenant:{posting.work.tenant}"] += posting.quantity
            elif posting.kind is not Kind.DOWN:
                found[posting.kind.value, posting.debit] += posting.quantity
        used = {key: value for key, value in found.items() if key[0] in {"used", "lent"}}
        assert used == {key: value for key, value in self.said[pool].items() if value and key[0] != "idle"}
        if pool not in self.cut:
            assert +found == +self.said[pool]

    def hours(self, pool: str) -> Iterator[Hour]:
        """What is known of each hour that something ran in, the gap at its end included."""
        records = [record for record in self.world.records if record.pool == pool]
        known = self.standings[pool]
        starts = {hour_of(each.start_ns, OFFSET) for each in known}
        starts |= {start for record in records if record.run_ns for start in hours_of(record, OFFSET)}
        for start in sorted(starts):
            end = start + NS_PER_HOUR
            pieces = (parts(record, start, end) for record in records)
            yield Hour(
                pool,
                start,
                RATES,
                standings=tuple(each for each in known if hour_of(each.start_ns, OFFSET) == start),
                uses=tuple(piece for piece in pieces if piece),
                before=next((each for each in reversed(known) if each.end_ns <= start), None),
            )


class CalmBooks(Books):
    """Nobody's promise is cut, so every account must agree."""

    def change(self, choose: Choose) -> None:
        choose([self.replica_comes, self.replica_goes, self.grant])(choose)

    def teardown(self) -> None:
        super().teardown()
        assert not self.cut


def standings(quota: Quota, start_ns: int, end_ns: int) -> Iterator[Standing]:
    """What is noted of a time in which nothing changes: a standing in each hour."""
    guaranteed = {f"tenant:{name}": node.guaranteed for name, node in quota.tenants.items()}
    guaranteed |= {f"group:{name}": node.own for name, node in quota.groups.items()}
    while start_ns < end_ns:
        until = min(end_ns, hour_of(start_ns, OFFSET) + NS_PER_HOUR)
        yield Standing(quota.pool, start_ns, until, quota.capacity, guaranteed)
        start_ns = until


def spoken(parts_of: Split) -> Iterator[tuple[tuple[str, str], int]]:
    for name, milli_gpu in parts_of.used.items():
        yield ("used", f"tenant:{name}"), milli_gpu
    for name, milli_gpu in parts_of.idle.items():
        yield ("idle", f"tenant:{name}"), milli_gpu
    for name, milli_gpu in parts_of.idle_of_groups.items():
        yield ("idle", f"group:{name}"), milli_gpu
    yield ("idle", PLATFORM), parts_of.idle_unowned


TestBooks = Books.TestCase
TestBooks.settings = thorough(20)
TestCalmBooks = CalmBooks.TestCase
TestCalmBooks.settings = thorough(20)
