"""Discrete events: arrivals, ends, failures and seconds, in order of time, through the machine that decides.

The loop knows no rule of sharing. It tells the machine what happens, does what the machine says, and tells an observer
what became of each arrival: refused or ended, exactly once. No clock and no randomness of its own: the same workload,
machine, cluster and seed give the same calls in the same order.
"""

import heapq
from collections import deque
from typing import Final

from commonpool.core.effects import Dispatch, Effect, Fail, Refuse, Settle, Start, StartReplica, StopReplica
from commonpool.core.events import (
    Arrived,
    Cancelled,
    Ended,
    Event,
    JobEnded,
    ReplicaLost,
    ReplicaReady,
    Submitted,
    Ticked,
)
from commonpool.core.model import NS_PER_HOUR, NS_PER_S, Outcome, Replica, Request, Usage, UsageRecord
from commonpool.core.records import STATUS_CLIENT_GONE
from commonpool.simulator.cluster import Cluster, Engine, Failures, Serving
from commonpool.simulator.contract import Decides, Observer, Preempt, Progress, SimulationError
from commonpool.simulator.live import Live, Station
from commonpool.simulator.workload import Arrival, Workload

__all__ = ["Decides", "Observer", "Preempt", "Progress", "SimulationError", "run"]

# The machine is told that time passes once a second while a request waits, or runs where replicas follow demand. Where
# only jobs wait, which do so for hours, or where replicas stand idle, a minute is as good and sixty times cheaper.
TICK_NS: Final = NS_PER_S
TICK_SLOW_NS: Final = 60 * NS_PER_S
# What waits while nothing runs may wait for another hour of the week, for the end of a promise or of a repair; after
# more than a week it waits for ever.
STUCK_NS: Final = 8 * 24 * NS_PER_HOUR
# Steps of the loop between two reports of progress.
PROGRESS_STEPS: Final = 5000

STATUS_ENGINE_FAILED: Final = 502
BROKE: Final = "The replica broke."

# Looked up once: a member of an enum costs more than the rest of its line.
COMPLETED: Final = Outcome.COMPLETED
CANCELLED: Final = Outcome.CANCELLED
FAILED: Final = Outcome.FAILED
REFUSED: Final = Outcome.REFUSED


# Kinds of events. An event is (time, order, kind, station, live, attempt); those that are out of date are passed over.
_WAKE: Final = 0  # a request on the station may have ended
_JOB_DONE: Final = 1
_TICK: Final = 2
_READY: Final = 3
_LOST: Final = 4
_GIVES_UP: Final = 5

_Entry = tuple[int, int, int, Station | None, Live | None, int]


def run(
    workload: Workload,
    machine: Decides,
    cluster: Cluster,
    observer: Observer,
    *,
    seed: int = 0,
    patience_ns: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Simulate until the last task has ended; return when that was.

    `seed` is for failures. `patience_ns` is how long clients wait for a first token before they go away; None: for
    ever. `progress` is called now and then with how many tasks are done, and of how many.

    Raises SimulationError for two tasks of one name, and when what waits can never run.
    """
    return _Run(workload, machine, cluster, observer, seed, patience_ns, progress).run()


class _Run:
    __slots__ = (
        "_arrivals",
        "_causes",
        "_engines",
        "_events",
        "_failures",
        "_handle",
        "_jobs_waiting",
        "_live",
        "_moved_at",
        "_observer",
        "_order",
        "_patience_ns",
        "_progress",
        "_requests",
        "_requests_waiting",
        "_seed",
        "_stations",
        "_tick_at",
        "_warm",
    )

    def __init__(
        self,
        workload: Workload,
        machine: Decides,
        cluster: Cluster,
        observer: Observer,
        seed: int,
        patience_ns: int | None,
        progress: Progress | None,
    ) -> None:
        self._arrivals: list[Arrival] = workload.arrivals
        self._handle = machine.handle
        self._observer = observer
        self._failures: Failures | None = cluster.failures
        self._patience_ns = patience_ns
        self._progress = progress
        self._warm: bool = cluster.warm
        self._engines: dict[str, Engine] = cluster.engines
        self._seed = seed
        self._stations = {serving.replica.id: Station(serving, seed) for serving in cluster.replicas}
        self._live: dict[str, Live] = {}
        self._events: list[_Entry] = []
        self._order = 0
        self._causes: deque[Event] = deque()  # what effects bring about at the same instant
        self._requests = 0  # that wait or run
        self._requests_waiting = 0
        self._jobs_waiting = 0
        self._tick_at = -1
        self._moved_at = 0  # when something last arrived, started or ended

    def run(self) -> int:
        arrivals, events, live = self._arrivals, self._events, self._live
        total = len(arrivals)
        if not total:
            return 0
        now: int = arrivals[0].at_ns
        self._moved_at = now
        self._open(now)
        index = 0
        next_at: int = now
        steps = 0
        while True:
            # What ends at an instant makes room for what arrives at it.
            if index < total and (not events or next_at < events[0][0]):
                now = next_at
                self._arrive(arrivals[index], now)
                index += 1
                if index < total:
                    next_at = arrivals[index].at_ns
            elif index < total or live:
                if not events:
                    self._stuck(now)
                event = heapq.heappop(events)
                now = event[0]
                self._happen(event, now)
            else:
                break
            steps += 1
            if steps % PROGRESS_STEPS == 0 and self._progress is not None:
                self._progress(index - len(live), total)
        if self._progress is not None:
            self._progress(total, total)
        return now

    def _open(self, now: int) -> None:
        for station in self._stations.values():
            if self._warm:
                self._ready(station, now)
            else:
                self._push(now + station.serving.speed.load_ns, _READY, station)
        if self._engines:
            # The machine has the first ones started, in time for the first arrival where the cluster is warm.
            load_ns = max(engine.speed.load_ns for engine in self._engines.values())
            self._send(Ticked(), max(0, now - load_ns) if self._warm else now)
            self._keep_time(now)

    # -- what happens --------------------------------------------------------------------------------------------------

    def _arrive(self, arrival: Arrival, now: int) -> None:
        task = arrival.task
        live = Live(arrival)
        if live.task_id in self._live:
            raise SimulationError(f"Two tasks at a time are named {live.task_id}; each needs an id of its own.")
        self._live[live.task_id] = live
        self._moved_at = now
        if isinstance(task, Request):
            self._requests += 1
            self._requests_waiting += 1
            patience_ns = self._patience_ns if arrival.patience_ns is None else arrival.patience_ns
            if patience_ns is not None:
                self._push(now + patience_ns, _GIVES_UP, None, live)
            self._send(Arrived(task), now)
        else:
            self._jobs_waiting += 1
            self._send(Submitted(task), now)
        if self._requests_waiting or self._jobs_waiting or self._engines:
            self._keep_time(now)

    def _happen(self, event: _Entry, now: int) -> None:
        kind, station, live = event[2], event[3], event[4]
        if kind == _WAKE and station is not None:
            if station.wakes_at == now:
                self._wake(station, now)
        elif kind == _JOB_DONE and live is not None:
            if live.running and live.attempt == event[5]:
                self._moved_at = now
                self._send(JobEnded(live.task_id, live.attempt, COMPLETED), now)
        elif kind == _TICK:
            if self._tick_at == now:
                self._tick(now)
        elif kind == _READY and station is not None:
            self._ready(station, now)
        elif kind == _LOST and station is not None:
            self._lose(station, now)
        elif kind == _GIVES_UP and live is not None:
            self._give_up(live, now)

    def _wake(self, station: Station, now: int) -> None:
        """Report the requests whose last token has come; sleep until the next one's may have."""
        done = station.ended(now)
        for served in done:
            if isinstance(served, Live):
                served.station = None
        for served in done:
            if isinstance(served, Live):
                self._moved_at = now
                produced = served.tokens_out * served.sequences
                usage = Usage(served.tokens_in, 0, produced)
                end = Ended(served.task_id, served.attempt, COMPLETED, usage, 200, served.first_token_at)
                self._send(end, now)
        station.wakes_at = -1
        self._sleep(station)

    def _tick(self, now: int) -> None:
        self._tick_at = -1
        waiting = self._requests_waiting + self._jobs_waiting
        if not waiting and not self._engines:
            return
        if now - self._moved_at > STUCK_NS and waiting and len(self._live) == waiting:
            self._stuck(now)
        self._send(Ticked(), now)
        self._keep_time(now)

    def _ready(self, station: Station, now: int) -> None:
        if station.gone:
            return
        if self._failures is not None:
            self._push(now + station.drawn(self._failures.mtbf_ns), _LOST, station)
        self._send(ReplicaReady(station.serving.replica), now)

    def _lose(self, station: Station, now: int) -> None:
        """The replica fails: so does all that runs there. It comes back when it is repaired and loaded."""
        if station.gone:
            return
        replica = station.serving.replica
        started = replica.model in self._engines
        self._send(ReplicaLost(replica.id, BROKE if started else ""), now)
        self._fail_all(station, now)
        if started:
            self._remove(station)
        elif self._failures is not None:
            repaired = now + station.drawn(self._failures.repair_ns)
            self._push(repaired + station.serving.speed.load_ns, _READY, station)
        self._keep_time(now)

    def _fail_all(self, station: Station, now: int) -> None:
        gone = station.clear()
        station.wakes_at = -1
        for served in gone:
            if isinstance(served, Live):
                self._send(self._again(served, FAILED, Usage(served.tokens_in), STATUS_ENGINE_FAILED), now)

    def _remove(self, station: Station) -> None:
        station.gone = True
        station.wakes_at = -1
        del self._stations[station.serving.replica.id]

    def _give_up(self, live: Live, now: int) -> None:
        """The client has waited long enough for a first token."""
        if self._live.get(live.task_id) is not live:
            return
        if not live.running:
            self._send(Cancelled(live.task_id), now)
        elif live.station is not None and now < live.first_token_at:
            live.station.leave(live, now)
            self._sleep(live.station)
            live.station = None
            usage = Usage(live.tokens_in)
            self._send(Ended(live.task_id, live.attempt, CANCELLED, usage, STATUS_CLIENT_GONE), now)

    # -- what the machine wants ----------------------------------------------------------------------------------------

    def _send(self, event: Event, now: int) -> None:
        """Tell the machine, and do what it says; then the same with what that has brought about."""
        for effect in self._handle(event, now):
            self._perform(effect, now)
        while self._causes:
            for effect in self._handle(self._causes.popleft(), now):
                self._perform(effect, now)

    def _perform(self, effect: Effect | Preempt, now: int) -> None:
        if isinstance(effect, Settle):
            self._settle(effect.record, now)
        elif isinstance(effect, Dispatch):
            live = self._begin(effect.request_id, effect.attempt, effect.wait_ns, now)
            station = self._stations[effect.replica_id]
            # The output ends at the client's bound or at the context, as at any engine.
            live.tokens_out = min(live.tokens_most, max(1, station.serving.context_tokens - live.tokens_in))
            live.station = station
            station.join(live, now)
            self._sleep(station)
        elif isinstance(effect, Start):
            live = self._begin(effect.job_id, effect.attempt, effect.wait_ns, now)
            self._push(now + live.arrival.duration_ns, _JOB_DONE, None, live, live.attempt)
        elif isinstance(effect, Refuse):
            self._observer.refused(self._forget(effect.request_id).arrival, effect.reason, now)
        elif isinstance(effect, Fail):
            live = self._forget(effect.request_id)
            if live.record is not None:
                self._observer.ended(live.arrival, live.record, now)
        elif isinstance(effect, Preempt):
            self._preempt(effect.task_id, now)
        elif isinstance(effect, StartReplica):
            self._start_replica(effect.replica, now)
        elif isinstance(effect, StopReplica):
            self._stop_replica(effect.replica_id, now)

    def _start_replica(self, replica: Replica, now: int) -> None:
        engine = self._engines[replica.model]
        station = self._stations[replica.id] = Station(
            Serving(replica, engine.speed, engine.context_tokens), self._seed
        )
        self._push(now + engine.speed.load_ns, _READY, station)

    def _stop_replica(self, replica_id: str, now: int) -> None:
        """It ends at once; what still runs there, past the time that it had to drain, fails."""
        station = self._stations[replica_id]
        self._remove(station)
        self._causes.append(ReplicaLost(replica_id))
        for served in station.clear():
            if isinstance(served, Live):
                self._causes.append(self._again(served, FAILED, Usage(served.tokens_in), STATUS_ENGINE_FAILED))
        self._keep_time(now)

    def _begin(self, task_id: str, attempt: int, wait_ns: int, now: int) -> Live:
        live = self._live[task_id]
        if live.job:
            self._jobs_waiting -= 1
        else:
            self._requests_waiting -= 1
        live.running = True
        live.attempt = attempt
        self._moved_at = now
        self._observer.started(live.arrival, now, wait_ns)
        return live

    def _settle(self, record: UsageRecord, now: int) -> None:
        """A record of a failed attempt is the last one only if `Fail` comes; one of a refusal says nothing new."""
        outcome = record.outcome
        live = self._live.get(record.request_id)
        if live is not None and live.preempted and outcome is CANCELLED:
            live.preempted = False
            self._observer.preempted(live.arrival, now, record.milli_gpu_ns)
            return
        if outcome is COMPLETED or outcome is CANCELLED:
            self._observer.ended(self._forget(record.request_id).arrival, record, now)
            return
        if outcome is REFUSED:
            return
        self._live[record.request_id].record = record

    def _preempt(self, task_id: str, now: int) -> None:
        """Kill what runs. What has ended at this very instant is let go, for its end is reported in a moment."""
        live = self._live.get(task_id)
        if live is None or not live.running:
            return
        if live.job:
            live.preempted = True
            live.running = False
            self._count_waiting(live, 1)
            self._causes.append(JobEnded(task_id, live.attempt, CANCELLED, retry=True))
        elif live.station is not None:
            live.preempted = True
            produced = live.station.leave(live, now)
            self._sleep(live.station)
            usage = Usage(live.tokens_in, 0, produced * live.sequences)
            self._causes.append(self._again(live, CANCELLED, usage, STATUS_ENGINE_FAILED))
        self._keep_time(now)

    # -- small things --------------------------------------------------------------------------------------------------

    def _again(self, live: Live, outcome: Outcome, usage: Usage, status: int) -> Ended:
        """The end of an attempt that is to be made again: the request waits."""
        live.station = None
        live.running = False
        self._count_waiting(live, 1)
        return Ended(live.task_id, live.attempt, outcome, usage, status, retry=True)

    def _forget(self, task_id: str) -> Live:
        live = self._live.pop(task_id)
        self._requests -= not live.job
        if not live.running:
            self._count_waiting(live, -1)
        return live

    def _count_waiting(self, live: Live, more: int) -> None:
        if live.job:
            self._jobs_waiting += more
        else:
            self._requests_waiting += more

    def _sleep(self, station: Station) -> None:
        """Wake the station at its next end. One that is awake earlier looks again then, so later needs no new event."""
        at = station.next_end()
        if at >= 0 and (station.wakes_at < 0 or at < station.wakes_at):
            station.wakes_at = at
            self._push(at, _WAKE, station)

    def _keep_time(self, now: int) -> None:
        quick = self._requests if self._engines else self._requests_waiting
        at = now + (TICK_NS if quick else TICK_SLOW_NS)
        if self._tick_at < 0 or at < self._tick_at:
            self._tick_at = at
            self._push(at, _TICK, None)

    def _push(self, at: int, kind: int, station: Station | None, live: Live | None = None, attempt: int = 0) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, kind, station, live, attempt))

    def _stuck(self, now: int) -> None:
        waits = next(iter(self._live))
        raise SimulationError(
            f"{len(self._live)} tasks wait although nothing has run for {(now - self._moved_at) // NS_PER_S} s, the "
            f"first of them {waits}: the pool as it is configured can never run them."
        )
