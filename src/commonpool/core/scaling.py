"""How many replicas a deployment should have.

`Scaler.decide` turns what is seen of a deployment (`Load`) into a number of replicas and the reason for it. A level is
what the load of this moment needs; what is wanted is the highest level of the last while. So it goes up at once and
down late, and a replica that starts is a replica: nothing is ordered twice.

Nothing flaps, for three reasons. To go down, a level must have been too high for the whole of `COOL_DOWN_NS` and of
`COOL_DOWN_STARTS` start-ups. It is held against the load with a quarter on top, so that a load which stays within a
tenth of itself never comes back over a level that it fell below. And while something starts, or has been up for less
than a start-up takes, nothing goes down but for a maximum that was lowered.

Figures that are not known are 0 and have a rule of their own: without a service time everything that is there needs a
slot at once, and a start is taken to be as long as `START_NS_GUESS`. No traffic is a load of 0.
"""

import enum
from math import isqrt
from typing import Final

import msgspec

from commonpool.core.model import NS_PER_S, Scaling

MILLI: Final = 1000
COOL_DOWN_NS: Final = 300 * NS_PER_S
COOL_DOWN_STARTS: Final = 3
START_NS_GUESS: Final = 60 * NS_PER_S
# Thousandths. What is held against a level before it goes down has so much on top.
MARGIN: Final = 250
# KV memory above this is as good as full: sequences of usual length stop fitting.
KV_TARGET: Final = 850
# First tokens are late when they were in so many more calls than they were not. Replicas that are an eighth less full
# will be in time; that is remembered for an hour. Where less than half of the slots is taken it is not the crowd.
LATE_CALLS: Final = 8
CROWD: Final = 875
CROWD_NS: Final = 3600 * NS_PER_S
# The tightest promise is remembered as long: those to whom it is given do not always wait.
TIGHT_NS: Final = 3600 * NS_PER_S
# Arrivals are counted in parts of a minute, and one more, which has not ended. Growth is that of a quarter over the one
# before it, where chance is no explanation: four standard deviations of a Poisson process. It is taken to go on, but to
# no more than a quarter as much again: a step looks like a slope.
PART_NS: Final = 5 * NS_PER_S
PARTS: Final = 13
QUARTER: Final = 3
DEVIATIONS: Final = 4
# What a sequence takes moves by a sixteenth of the difference with each call: the highest level of minutes is what
# counts, so that it must not follow single long ones.
SERVICE_SHIFT: Final = 4


class Short(enum.StrEnum):
    """What the nodes of a deployment's replicas are out of, beside GPUs."""

    NONE = "none"
    CPU = "cpu"
    MEMORY = "memory"
    NETWORK = "network"


class Why(enum.StrEnum):
    """Why a deployment should have the replicas that it should have."""

    LOAD = "load"  # what runs and arrives
    WAIT = "wait"  # what waits, against what it was promised
    GROWTH = "growth"  # arrivals grow, and a start takes time
    FORECAST = "forecast"  # what its tenants will probably want by the time that a start takes
    KV_MEMORY = "kv_memory"
    FIRST_TOKEN = "first_token"  # noqa: S105 - a word, no secret; replicas this full answer late
    WAKING = "waking"  # it was asleep and is asked for
    IDLE = "idle"  # nobody asks
    GATHERING = "gathering"  # async: too little waits for a start
    COOLING = "cooling"  # more than is needed, for not long enough to go down
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    CLAIMED = "claimed"  # somebody within its guarantee waits for GPUs that serve borrowers here
    HOST_SHORT = "host_short"  # GPUs would not help: CPU, memory or network of the nodes is what is short


class Load(msgspec.Struct, frozen=True, gc=False):
    """What is seen of one deployment. Counts are sequences unless they say otherwise, times nanoseconds.

    `slots` and `milli_gpu` are a replica's. `waiting` is what a further replica would help: not what waits for quota.
    `running_within` and `waiting_within` are the parts of tenants within their guarantee; `longest_wait_ns` is theirs
    where any of them waits. `target_wait_ns` is what they are promised. `arrivals` since the last call, with those that
    were refused for want of capacity. `service_ns` is how long a sequence runs, `start_ns` how long a start takes, both
    learned, 0: not known. `kv_used` is in thousandths of the KV memory of the ready replicas. `forecast` is what is
    expected at once within the next start-up time. `claimed`: the milli_gpu of this pool for which others wait within
    their guarantee.
    """

    now: int
    slots: int
    milli_gpu: int
    ready: int = 0
    starting: int = 0
    draining: int = 0
    running: int = 0
    running_within: int = 0
    waiting: int = 0
    waiting_within: int = 0
    longest_wait_ns: int = 0
    target_wait_ns: int = 0
    arrivals: int = 0
    service_ns: int = 0
    start_ns: int = 0
    kv_used: int = 0
    first_token_late: bool = False
    forecast: int = 0
    host_short: Short = Short.NONE
    claimed: int = 0


class Decision(msgspec.Struct, frozen=True, gc=False):
    """How many replicas there should be, those that start included and those that drain not, and why."""

    replicas: int
    reason: Why


class Scaler:
    """One deployment's memory of its load. `decide` is called about once a second, and whenever something changed."""

    __slots__ = (
        "_arrivals",
        "_asked_at",
        "_crowd",
        "_crowd_at",
        "_late",
        "_levels",
        "_part_began",
        "_ready",
        "_risen_at",
        "_service_ns",
        "_tight_at",
        "_tight_ns",
        "_yielded_at",
    )

    def __init__(self) -> None:
        self._arrivals = [0] * PARTS  # oldest first
        self._part_began = -1  # when the newest part did; -1 before the first call
        self._levels: list[tuple[int, int]] = []  # (until when, level), levels falling: the first is the highest
        self._asked_at = 0  # when somebody last asked for it
        self._ready = 0
        self._risen_at = 0  # when a replica last came up
        self._service_ns = 0  # how long a sequence runs; 0: not known
        self._tight_ns = 0  # the tightest promise to somebody who waited; 0: nobody has yet
        self._tight_at = 0
        self._crowd = 0  # thousandths of a sequence a replica with which first tokens are in time; 0: as many as fit
        self._crowd_at = 0
        self._late = 0  # calls with late first tokens, less those without
        self._yielded_at = -1  # when it last gave way; -1: never

    def decide(self, scaling: Scaling, load: Load) -> Decision:
        """How many replicas this deployment should have now. `load.now` never goes backwards."""
        start_ns = load.start_ns or START_NS_GUESS
        cool_ns = max(COOL_DOWN_NS, COOL_DOWN_STARTS * start_ns)
        self._notice(load, start_ns)
        wanted, why = self._by_load(scaling, load, start_ns, cool_ns)
        return self._bounded(scaling, load, wanted, why, start_ns, cool_ns)

    # -- what is remembered --------------------------------------------------------------------------------------------

    def _notice(self, load: Load, start_ns: int) -> None:
        now = load.now
        if self._part_began < 0:
            # What is there already counts as needed until it is known better.
            self._part_began = self._asked_at = self._risen_at = now
            self._levels.append((now, load.ready + load.starting))
        self._count(load.arrivals, now)
        if _asked(load):
            self._asked_at = now
        if load.ready > self._ready:
            self._risen_at = now
        self._ready = load.ready
        promised = load.target_wait_ns
        if promised and (not self._tight_ns or promised <= self._tight_ns or now - self._tight_at >= TIGHT_NS):
            self._tight_ns, self._tight_at = promised, now
        if self._service_ns and load.service_ns:
            self._service_ns += (load.service_ns - self._service_ns) >> SERVICE_SHIFT
        else:
            self._service_ns = load.service_ns
        self._judge_first_tokens(load, start_ns)

    def _judge_first_tokens(self, load: Load, start_ns: int) -> None:
        now = load.now
        if now - self._crowd_at >= CROWD_NS:
            self._crowd = 0
        if not load.first_token_late:
            self._late -= 1 if self._late and load.arrivals else 0
            return
        self._late += 1
        if self._late < LATE_CALLS:
            return
        self._late = 0
        # What waits is late for want of a slot. What starts, or has just come up, has not helped yet.
        settled = not load.waiting and not load.starting and now - self._risen_at >= start_ns
        if settled and 2 * load.running >= load.ready * load.slots and load.host_short is Short.NONE:
            self._crowd_at = now
            self._crowd = load.running * CROWD // max(1, load.ready)

    def _count(self, arrivals: int, now: int) -> None:
        """Those since the last call are taken to have come evenly."""
        passed = (now - self._part_began) // PART_NS
        if not passed:
            self._arrivals[-1] += arrivals
            return
        self._part_began += passed * PART_NS
        for _ in range(min(passed, PARTS)):
            del self._arrivals[0]
            self._arrivals.append(arrivals // passed)
        self._arrivals[-1] += arrivals % passed

    def _highest(self, level: int, now: int, cool_ns: int) -> int:
        """The highest level of the cool-down, this one included. Each lasts until the next call."""
        levels = self._levels
        levels[-1] = (now, levels[-1][1])
        while levels and levels[-1][1] <= level:
            levels.pop()
        levels.append((now, level))
        while levels[0][0] < now - cool_ns:
            del levels[0]
        return levels[0][1]

    # -- what the load needs -------------------------------------------------------------------------------------------

    def _by_load(self, scaling: Scaling, load: Load, start_ns: int, cool_ns: int) -> tuple[int, Why]:
        """Up at once, down late, and what the deployment's residency says."""
        current = load.ready + load.starting
        level, why = self._level(load, start_ns, 0)
        careful, _ = self._level(load, start_ns, MARGIN)
        lasting = self._highest(min(careful, scaling.replicas_max), load.now, cool_ns)
        if self._asleep(scaling, load, start_ns):
            return 0, Why.GATHERING if load.waiting else Why.IDLE
        floor = scaling.replicas_min
        if scaling.residency in ("on_demand", "async"):
            floor = max(1, floor)
            if not current:
                return max(level, floor), Why.WAKING
        wanted = max(level, min(current, lasting))
        if floor > level and floor >= wanted:
            return floor, Why.MINIMUM
        if not wanted:
            return 0, Why.IDLE
        return wanted, Why.COOLING if wanted > careful else why

    def _asleep(self, scaling: Scaling, load: Load, start_ns: int) -> bool:
        """Whether there is to be no replica at all."""
        quiet_ns = load.now - self._asked_at
        there = load.ready + load.starting
        if scaling.residency == "on_demand":
            return quiet_ns >= scaling.idle_ns if there else not _asked(load)
        if scaling.residency != "async":
            return False
        if there:
            # To idle for as long as a start takes costs what the start does.
            return quiet_ns >= start_ns
        if 2 * load.longest_wait_ns >= load.target_wait_ns or not load.waiting:
            return not load.waiting
        # Where it is not known how much work that is, a full replica is worth it.
        return load.waiting * (self._service_ns or start_ns) < load.slots * start_ns

    def _level(self, load: Load, start_ns: int, margin: int) -> tuple[int, Why]:
        """The replicas that the load of this moment needs, with `margin` thousandths on top, and what for."""
        density = load.slots * MILLI * MILLI // (MILLI + margin)
        # 1. What runs: by Little's law, or by what is seen.
        arriving = -(-sum(self._arrivals[:-1]) * self._service_ns // ((PARTS - 1) * PART_NS))
        sequences = max(load.running, arriving)
        backlog = self._backlog(load, start_ns)
        # 2. Where a start takes longer than anybody may wait, headroom for chance, for growth and for the forecast.
        ahead = 2 * start_ns > self._tight_ns
        growing = max(sequences, self._growing(start_ns)) if ahead else sequences
        headroom = isqrt(growing) if ahead else 0
        needs = [
            (_replicas(sequences + headroom, density), Why.LOAD),
            (_replicas(growing + headroom, density), Why.GROWTH),
            # 3. What waits: what remains of its promise is enough, or as long as what is started for it takes to come.
            (_replicas(growing + headroom + backlog, density), Why.WAIT),
            (_replicas(load.forecast if ahead else 0, density), Why.FORECAST),
        ]
        # 4. What replicas hold before first tokens are late or KV memory is full.
        most = max(growing + headroom + backlog, load.forecast if ahead else 0)
        if self._crowd:
            needs.append((_replicas(most, self._crowd * MILLI // (MILLI + margin)), Why.FIRST_TOKEN))
        kv = load.ready * load.kv_used * (load.running + backlog) * (MILLI + margin)
        needs.append((-(-kv // (max(1, load.running) * KV_TARGET * MILLI)), Why.KV_MEMORY))
        # 5. A guarantee that is being missed outranks all averages.
        if load.waiting_within and load.longest_wait_ns > load.target_wait_ns:
            needs.append((load.ready + _replicas(load.waiting_within, density), Why.WAIT))
        level, why = needs[0]
        for need, what_for in needs:
            if need > level:
                level, why = need, what_for
        return level, why

    def _growing(self, start_ns: int) -> int:
        """What will run at once when what is started now has come, where arrivals grow; else 0."""
        before = sum(self._arrivals[-1 - 2 * QUARTER : -1 - QUARTER])
        lately = sum(self._arrivals[-1 - QUARTER : -1])
        more = lately - before
        if more <= 0 or more * more <= DEVIATIONS * DEVIATIONS * (lately + before):
            return 0
        quarter_ns = QUARTER * PART_NS
        then = lately + min(lately // 4, more * start_ns // quarter_ns)
        return -(-then * self._service_ns // quarter_ns)

    def _backlog(self, load: Load, start_ns: int) -> int:
        """The slots in which what waits is done in time."""
        if not self._service_ns:
            return load.waiting
        within_ns = max(load.target_wait_ns - load.longest_wait_ns, start_ns)
        return min(load.waiting, -(-load.waiting * self._service_ns // within_ns))

    # -- what bounds it ------------------------------------------------------------------------------------------------

    def _bounded(self, scaling: Scaling, load: Load, wanted: int, why: Why, start_ns: int, cool_ns: int) -> Decision:
        now = load.now
        current = load.ready + load.starting
        # 1. What others are guaranteed comes before what borrowers get here, until nobody has claimed it for long.
        if load.claimed:
            self._yielded_at = now
        if self._yielded_at >= 0 and now - self._yielded_at < cool_ns:
            kept = self._kept(scaling, load)
            if wanted > kept:
                wanted, why = kept, Why.CLAIMED
        # 2. GPUs do not help where the host is what is short.
        if wanted > current and load.ready and load.host_short is not Short.NONE:
            least = max(current, min(wanted, scaling.replicas_min))
            if wanted > least:
                wanted, why = least, Why.HOST_SHORT
        # 3. What starts, or has only just come up, is not taken down.
        if wanted < current and (load.starting or now - self._risen_at < start_ns):
            wanted, why = current, Why.COOLING
        if wanted > scaling.replicas_max:
            wanted, why = scaling.replicas_max, Why.MAXIMUM
        return Decision(wanted, why)

    def _kept(self, scaling: Scaling, load: Load) -> int:
        """What may stay while others claim: what serves tenants within their guarantee, and what is not claimed."""
        least = _replicas(load.running_within + load.waiting_within, load.slots * MILLI)
        if scaling.residency == "resident":
            least = max(least, scaling.replicas_min)
        coming_back = load.draining * load.milli_gpu
        given = _replicas(max(0, load.claimed - coming_back), load.milli_gpu * MILLI)
        return max(least, load.ready + load.starting - given)


def _asked(load: Load) -> bool:
    return load.running > 0 or load.waiting > 0 or load.arrivals > 0


def _replicas(sequences: int, density: int) -> int:
    """How many hold so much, at so many thousandths each."""
    return -(-sequences * MILLI // max(1, density))
