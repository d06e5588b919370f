"""Given requests that are over, when they are offered, then a collector gets them, and nobody waits for it."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from structlog.testing import capture_logs

from commonpool.core.model import NS_PER_S, Request
from commonpool.observe.exporting import BATCH_MAX, Exporter, ExportError, families
from commonpool.observe.traces import Ended
from tests.observe.collector import decoded

REQUEST = Request("r1", "support", "helpdesk", "tiny", "interactive", "chat", 7)
ENDED = Ended(REQUEST, 1 << 100, 5, 0, b"", NS_PER_S, NS_PER_S + 5, 200, "", False, ())


def numbered(number: int) -> Ended:
    return msgspec.structs.replace(ENDED, span_id=number)


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


class Sink:
    """A collector that answers with `answers`, then 200; it keeps what it took, by span ids."""

    def __init__(self, *answers: int | str) -> None:
        self.answers = list(answers)
        self.posts: list[list[int]] = []
        self.taken: list[int] = []
        self.open = threading.Event()
        self.open.set()

    async def send(self, payload: bytes) -> int:
        await asyncio.to_thread(self.open.wait)
        answer = self.answers.pop(0) if self.answers else 200
        ids = [int(span.span_id, 16) for span in decoded(payload)]
        self.posts.append(ids)
        if isinstance(answer, str):
            raise ExportError(answer)
        if answer == 200:
            self.taken += ids
        return answer


@contextmanager
def exporting(sink: Sink, **options: float) -> Iterator[Exporter]:
    exporter = Exporter(sink.send, {"service.name": "x"}, every_s=0.01, again_s=0.01, **options)  # type: ignore[arg-type]
    try:
        yield exporter
    finally:
        sink.open.set()
        exporter.close()


def counts(exporter: Exporter) -> dict[str, float]:
    exported, dropped = families(exporter.became)
    found = {"exported": exported.samples[0][1], **{labels[0]: value for labels, value in dropped.samples}}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def test_all_that_is_offered_comes_in_order_and_in_batches() -> None:
    sink = Sink()
    with exporting(sink) as exporter:
        sink.open.clear()
        for number in range(1, 2 * BATCH_MAX + 2):
            exporter.offer(numbered(number))
        sink.open.set()
        until(lambda: len(sink.taken) == 2 * BATCH_MAX + 1)
    assert sink.taken == list(range(1, 2 * BATCH_MAX + 2))
    assert max(map(len, sink.posts)) <= BATCH_MAX
    assert counts(exporter) == {"exported": 2 * BATCH_MAX + 1, "queue_full": 0, "not_taken": 0}


def test_nothing_begins_before_something_is_offered() -> None:
    before = threading.active_count()
    exporter = Exporter(Sink().send, {})
    assert threading.active_count() <= before  # one of another test may have ended
    exporter.close()


def test_what_does_not_fit_is_dropped_at_once() -> None:
    sink = Sink()
    with exporting(sink, queue_max=3) as exporter:
        sink.open.clear()
        exporter.offer(numbered(1))
        until(lambda: not exporter._queue)  # it is on its way
        for number in range(2, 10):
            exporter.offer(numbered(number))
        assert counts(exporter)["queue_full"] == 5
    assert sink.taken == [1, 2, 3, 4]


def test_a_collector_that_comes_back_gets_what_waited() -> None:
    sink = Sink("it cannot be reached", 503, 429)
    with exporting(sink) as exporter:
        exporter.offer(numbered(1))
        until(lambda: sink.taken == [1])
    assert sink.posts == [[1]] * 4
    assert counts(exporter) == {"exported": 1, "queue_full": 0, "not_taken": 0}


def test_what_a_collector_does_not_want_is_not_sent_again() -> None:
    sink = Sink(400)
    with exporting(sink) as exporter:
        exporter.offer(numbered(1))
        until(lambda: counts(exporter)["not_taken"] == 1)
        exporter.offer(numbered(2))
        until(lambda: sink.taken == [2])
    assert sink.posts == [[1], [2]]


def test_an_outage_is_a_line_of_log_a_minute() -> None:
    sink = Sink(*["it is away"] * 5)
    now = [0]
    with capture_logs() as lines, exporting(sink, clock=lambda: now[0]) as exporter:  # type: ignore[arg-type]
        exporter.offer(numbered(1))
        until(lambda: sink.taken == [1])
        assert [line["event"] for line in lines] == ["traces cannot be exported"]
        now[0] = 60 * NS_PER_S
        sink.answers = ["it is away again"]
        exporter.offer(numbered(2))
        until(lambda: sink.taken == [1, 2])
        assert [line["reason"] for line in lines] == ["it is away", "it is away again"]


def test_the_end_sends_what_is_left_and_does_not_wait_for_one_that_is_away() -> None:
    sink = Sink()
    with exporting(sink) as exporter:
        exporter.offer(numbered(1))
    assert sink.taken == [1]
    away = Sink(*["it is away"] * 1000)
    with exporting(away) as exporter:
        exporter.offer(numbered(1))
        until(lambda: bool(away.posts))
    assert counts(exporter)["not_taken"] == 1
