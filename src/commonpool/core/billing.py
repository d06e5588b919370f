"""Bills: what the postings of a period add up to for each account, and its part of the costs that all share.

A bill is made day by day, and each day is rounded once, to whole micro-units, by largest remainder over all its
amounts; a month is the sum of its days. So figures agree to the unit, however a period is cut up. Loans are rounded
among themselves, so that what a borrower pays is what its lender earns.

Cost is in four layers: `infrastructure` (nodes, power, room), `runtime` (GPU time at the pool's price, loans included),
`request` (what is metered beside GPU time) and `operation`. GPU time and meters are in the postings; what is fixed by
the month is a `SharedCost` of any layer, split among tenants and groups.

Bills are made of all accounts and filtered afterwards: whose part of a shared cost is how large depends on all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from commonpool.core.ledger import GPU_HOUR, METERS, PLATFORM, Kind, tenant_account
from commonpool.core.pricing import COST_UNIT, round_half_up, round_lines

Layer = Literal["infrastructure", "runtime", "request", "operation"]
LAYERS: Final[tuple[Layer, ...]] = ("infrastructure", "runtime", "request", "operation")
SPLITS: Final = ("uniform", "proportional", "guaranteed", *METERS)  # how a shared cost may be split
EARNED: Final = "earned"  # of a lender: what borrowers paid it; its money is below zero

_OWN: Final = (Kind.USED.value, Kind.IDLE.value, Kind.LENT.value, Kind.LOADING.value, Kind.DRAINING.value)
_BORROWED: Final = Kind.BORROWED.value
_WORKED: Final = (Kind.USED.value, _BORROWED)
_PLATFORM_METERS: Final = {"storage_gib_hour": "storage", "network_gb": "network"}


class SharedCost(msgspec.Struct, frozen=True):
    """A fixed cost in micro-units a month, from `start_ns` until `until_ns` (None: without end).

    `split` says among whom. uniform: every tenant alike. proportional: to what each pays for run time. guaranteed: to
    the GPU time that is guaranteed to it. Or a meter's name: to what was metered of each; the meter needs a price, if
    only 0. `pool` narrows it to those of one pool. What nobody has a part in is the platform's.
    """

    name: str
    layer: Layer
    micro_per_month: int
    split: str
    pool: str | None = None
    start_ns: int | None = None
    until_ns: int | None = None


class PostingSum(msgspec.Struct, frozen=True):
    """Postings that are alike in everything but hour and quantity, added up.

    `keys` are by what it was asked for, values of the work; a bill's first is the tenant whose work it was.
    `correction`: they are about hours before the time that was asked for.
    """

    keys: tuple[str, ...]
    kind: str
    debit: str
    credit: str
    meter: str
    micro: int
    quantity: int
    pool: str = ""
    correction: bool = False

    @property
    def exact_cost(self) -> int:
        """As of a posting, in 1 / COST_UNIT micro-units."""
        return self.quantity * self.micro * (COST_UNIT // METERS[self.meter])


class HourlySum(msgspec.Struct, frozen=True):
    """Records with the same keys, counted: what a bill shows beside money. A request counts in the hour it ended in."""

    keys: tuple[str, ...]
    requests: int = 0
    completed: int = 0
    attempts: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    milli_gpu_ns: int = 0


class Day(msgspec.Struct, frozen=True):
    """A day of the billing time zone, or the part of it that is closed, and the month that it is in; nanoseconds.

    `postings` and `counts` were asked for by ("tenant", *by), in the same order, of all accounts.
    """

    start_ns: int
    end_ns: int
    month_start_ns: int
    month_end_ns: int
    postings: tuple[PostingSum, ...]
    counts: tuple[HourlySum, ...] = ()


class BillLine(msgspec.Struct, frozen=True):
    """What one account pays for one combination of keys; what is about no work, such as idle, has empty keys.

    `milli_gpu_ns` and `micro` are by kind of posting, and EARNED; `metered` (in the units of METERS) and `fees` by
    meter; `shared` by name of the cost. Money is in micro-units.
    """

    account: str
    keys: tuple[str, ...]
    milli_gpu_ns: dict[str, int]
    micro: dict[str, int]
    metered: dict[str, int]
    fees: dict[str, int]
    shared: dict[str, int]
    counts: HourlySum

    @property
    def guaranteed(self) -> int:
        """The GPU time that it pays the pool for: used, idle or lent, with what its replicas took to come and go."""
        return sum(self.milli_gpu_ns.get(kind, 0) for kind in _OWN)

    @property
    def guaranteed_micro(self) -> int:
        """What it pays the pool for that."""
        return sum(self.micro.get(kind, 0) for kind in _OWN)

    @property
    def used(self) -> int:
        """The GPU time of its charged work, borrowed or not."""
        return sum(self.milli_gpu_ns.get(kind, 0) for kind in _WORKED)

    @property
    def runtime_micro(self) -> int:
        """GPU time of every kind; loans paid, and less what lending earned."""
        return sum(self.micro.values())

    @property
    def total_micro(self) -> int:
        return self.runtime_micro + sum(self.fees.values()) + sum(self.shared.values())


class Bill(msgspec.Struct, frozen=True):
    """The lines of a period, by account and keys, sorted. `by` names the keys; `costs` are those that were shared."""

    start_ns: int
    end_ns: int
    by: tuple[str, ...]
    lines: tuple[BillLine, ...]
    costs: tuple[SharedCost, ...] = ()

    @property
    def total_micro(self) -> int:
        return sum(line.total_micro for line in self.lines)

    def layers(self, line: BillLine) -> dict[Layer, int]:
        """What a line costs in each of the four layers, in micro-units; they sum to its total."""
        sums = dict.fromkeys(LAYERS, 0)
        sums["runtime"] = line.runtime_micro
        sums["request"] = sum(line.fees.values())
        layers = {cost.name: cost.layer for cost in self.costs}
        for name, micro in line.shared.items():
            sums[layers[name]] += micro
        return sums


class UnitCosts(msgspec.Struct, frozen=True):
    """What one effective result cost, in micro-units: a request or job that completed, whatever it took.

    `platform` is the part of the infrastructure, `storage` and `network` their meters, `fees` the other ones.
    `million_tokens` is the whole cost for a million tokens, in and out; None where there were none.
    """

    runtime: int
    platform: int
    storage: int
    network: int
    fees: int
    operation: int
    million_tokens: int | None

    @property
    def result(self) -> int:
        return self.runtime + self.platform + self.storage + self.network + self.fees + self.operation


class Lent(msgspec.Struct, frozen=True):
    """What a lender lent to a borrower, and what it was paid for that, in micro-units."""

    milli_gpu_ns: int
    micro: int


def bill(days: Sequence[Day], by: Sequence[str], costs: Sequence[SharedCost] = ()) -> Bill:
    """The bill of these days, in order, by some dimensions of the work beside the account.

    So the bills of two halves of a period sum to the bill of the whole, line by line.
    """
    names = tuple(by)
    lines: dict[tuple[str, ...], BillLine] = {}
    for day in days:
        for line in _lines_of(day, names, costs):
            key = (line.account, *line.keys)
            before = lines.get(key)
            lines[key] = line if before is None else combined((before, line), line.account, line.keys)
    ordered = tuple(lines[key] for key in sorted(lines))
    return Bill(days[0].start_ns if days else 0, days[-1].end_ns if days else 0, names, ordered, tuple(costs))


def combined(lines: Iterable[BillLine], account: str, keys: tuple[str, ...]) -> BillLine:
    """Lines as one: of a group with those below it, of a tenant whatever its work."""
    every = tuple(lines)
    counts = [line.counts for line in every]
    return BillLine(
        account,
        keys,
        _sums(line.milli_gpu_ns for line in every),
        _sums(line.micro for line in every),
        _sums(line.metered for line in every),
        _sums(line.fees for line in every),
        _sums(line.shared for line in every),
        HourlySum(
            keys,
            sum(each.requests for each in counts),
            sum(each.completed for each in counts),
            sum(each.attempts for each in counts),
            sum(each.tokens_in for each in counts),
            sum(each.tokens_cached for each in counts),
            sum(each.tokens_out for each in counts),
            sum(each.milli_gpu_ns for each in counts),
        ),
    )


def share(amount: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Split an amount in proportion to weights, not below zero; the parts sum to it, by largest remainder.

    Where nobody has a weight it is the platform's.
    """
    whole = sum(weights.values())
    if not whole:
        return {PLATFORM: amount}
    return round_lines({name: amount * weight for name, weight in weights.items()}, whole)


def unit_costs(bill_: Bill, line: BillLine) -> UnitCosts | None:
    """What an effective result cost on this line of a bill; None where there was none.

    All that the line paid is in it: what failed, was cancelled or lay idle makes results dearer. The parts sum to the
    whole, by largest remainder.
    """
    results = line.counts.completed
    if not results:
        return None
    layers = bill_.layers(line)
    parts = {"runtime": layers["runtime"], "platform": layers["infrastructure"], "operation": layers["operation"]}
    parts |= {"storage": 0, "network": 0, "fees": layers["request"]}
    for meter, name in _PLATFORM_METERS.items():
        micro = line.fees.get(meter, 0)
        parts[name] += micro
        parts["fees"] -= micro
    tokens = line.counts.tokens_in + line.counts.tokens_out
    return UnitCosts(
        **round_lines(parts, results),
        million_tokens=round_half_up(line.total_micro * 1_000_000, tokens) if tokens else None,
    )


def matrix(days: Iterable[Day]) -> dict[tuple[str, str], Lent]:
    """What each lender lent to each borrower, by account. The platform borrows for work that is not charged."""
    return matrices({(lender[0], borrower[0]): lent} for day in days for borrower, lender, lent in _loans_of(day, ()))


def matrices(several: Iterable[Mapping[tuple[str, str], Lent]]) -> dict[tuple[str, str], Lent]:
    """Those of several times as one, sorted: the matrix of their days together."""
    found: dict[tuple[str, str], Lent] = {}
    for each in several:
        for pair, lent in each.items():
            before = found.get(pair, Lent(0, 0))
            found[pair] = Lent(before.milli_gpu_ns + lent.milli_gpu_ns, before.micro + lent.micro)
    return {pair: found[pair] for pair in sorted(found)}


def forecast(micro: int, start_ns: int, now_ns: int, end_ns: int) -> int:
    """What a period will have cost at its end, when it cost this much until now and goes on alike."""
    if now_ns <= start_ns:
        return micro
    return round_half_up(micro * (max(now_ns, end_ns) - start_ns), now_ns - start_ns)


# -- a day -------------------------------------------------------------------------------------------------------------


def _lines_of(day: Day, by: tuple[str, ...], costs: Sequence[SharedCost]) -> list[BillLine]:
    """The lines of one day, rounded."""
    sheet = _Sheet()
    for each in day.postings:
        if each.kind != _BORROWED:
            table, name = ("micro", each.kind) if each.meter == GPU_HOUR else ("fees", each.meter)
            sheet.add((each.debit, *each.keys[1:]), table, name, each.quantity, each.exact_cost)
    for cost in costs:
        amount = accrued(cost, day)
        if amount:
            keys = _without_work(by, cost.pool or "")
            for account, part in share(amount, _weights(cost, day.postings)).items():
                sheet.add((account, *keys), "shared", cost.name, 0, part)
    for counts in day.counts:
        sheet.count((tenant_account(counts.keys[0]), *counts.keys[1:]), counts)
    sheet.round()
    for borrower, lender, lent in _loans_of(day, by):
        sheet.put(borrower, "micro", _BORROWED, lent.milli_gpu_ns, lent.micro)
        sheet.put(lender, "micro", EARNED, lent.milli_gpu_ns, -lent.micro)
    return sheet.lines()


def _loans_of(day: Day, by: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], Lent]]:
    """What was lent on a day, by line of the borrower, and of the lender: that one is about no work of its own."""
    quantities: dict[tuple[str, ...], int] = {}
    exact: dict[tuple[str, ...], int] = {}
    for each in day.postings:
        if each.kind == _BORROWED:
            pair = (each.debit, *each.keys[1:], each.credit, *_without_work(by, each.pool))
            quantities[pair] = quantities.get(pair, 0) + each.quantity
            exact[pair] = exact.get(pair, 0) + each.exact_cost
    for pair, micro in round_lines(exact).items():
        middle = len(pair) - 1 - len(by)
        yield pair[:middle], pair[middle:], Lent(quantities[pair], micro)


def _without_work(by: tuple[str, ...], pool: str) -> tuple[str, ...]:
    return tuple(pool if name == "pool" else "" for name in by)


def accrued(cost: SharedCost, day: Day) -> int:
    """What of a cost falls on a day, in 1 / COST_UNIT micro-units: the days of a month sum to the month's, exactly."""
    start = day.start_ns if cost.start_ns is None else max(day.start_ns, cost.start_ns)
    end = day.end_ns if cost.until_ns is None else min(day.end_ns, cost.until_ns)
    if end <= start:
        return 0
    month = cost.micro_per_month * COST_UNIT
    length = day.month_end_ns - day.month_start_ns
    return month * (end - day.month_start_ns) // length - month * (start - day.month_start_ns) // length


def _weights(cost: SharedCost, postings: Iterable[PostingSum]) -> dict[str, int]:
    """By how much each account takes part in a cost."""
    weights: dict[str, int] = {}
    for each in postings:
        if cost.pool is None or each.pool == cost.pool:
            weights[each.debit] = weights.get(each.debit, 0) + _weight(cost.split, each)
            if (
                cost.split == "proportional" and each.kind == _BORROWED
            ):  # what it earned makes the lender's run time cheaper
                weights[each.credit] = weights.get(each.credit, 0) - each.exact_cost
    if cost.split == "uniform":
        weights = {account: 1 for account in weights if account.startswith("tenant:")}
    weights.pop(PLATFORM, None)
    return {account: weight for account, weight in weights.items() if weight > 0}


def _weight(split: str, posting: PostingSum) -> int:
    """What one posting adds to its payer's part."""
    about_gpus = posting.meter == GPU_HOUR
    match split:
        case "proportional":
            return posting.exact_cost if about_gpus else 0
        case "guaranteed":
            return posting.quantity if posting.kind in _OWN else 0
        case "gpu_hour":
            return posting.quantity if posting.kind in _WORKED else 0
        case meter:
            return posting.quantity if posting.meter == meter else 0


class _Sheet:
    """The amounts of a day: by line, then which of a line's tables, then the name in it. All are rounded together."""

    def __init__(self) -> None:
        self._exact: dict[tuple[str, ...], int] = {}
        self._micro: dict[tuple[str, ...], int] = {}
        self._quantities: dict[tuple[str, ...], int] = {}
        self._counts: dict[tuple[str, ...], HourlySum] = {}

    def add(self, line: tuple[str, ...], table: str, name: str, quantity: int, exact: int) -> None:
        cell = (*line, table, name)
        self._exact[cell] = self._exact.get(cell, 0) + exact
        self._quantities[cell] = self._quantities.get(cell, 0) + quantity

    def put(self, line: tuple[str, ...], table: str, name: str, quantity: int, micro: int) -> None:
        """What is rounded already."""
        cell = (*line, table, name)
        self._micro[cell] = self._micro.get(cell, 0) + micro
        self._quantities[cell] = self._quantities.get(cell, 0) + quantity

    def round(self) -> None:
        self._micro = round_lines(self._exact)

    def count(self, line: tuple[str, ...], counts: HourlySum) -> None:
        self._counts[line] = msgspec.structs.replace(counts, keys=line[1:])

    def lines(self) -> list[BillLine]:
        tables: dict[tuple[str, ...], dict[str, dict[str, int]]] = {line: _tables() for line in self._counts}
        for cell, micro in self._micro.items():
            *line, table, name = cell
            found = tables.setdefault(tuple(line), _tables())
            found[table][name] = micro
            if table != "shared":
                found["quantities" if table == "micro" else "metered"][name] = self._quantities[cell]
        return [
            BillLine(
                account=line[0],
                keys=line[1:],
                milli_gpu_ns=found["quantities"],
                micro=found["micro"],
                metered=found["metered"],
                fees=found["fees"],
                shared=found["shared"],
                counts=self._counts.get(line, HourlySum(line[1:])),
            )
            for line, found in tables.items()
        ]


def _tables() -> dict[str, dict[str, int]]:
    return {"quantities": {}, "micro": {}, "metered": {}, "fees": {}, "shared": {}}


def _sums(tables: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for table in tables:
        for name, value in table.items():
            sums[name] = sums.get(name, 0) + value
    return sums
