"""What clients notice while the writer works off a journal: the same product, with a backlog and without."""

import contextlib
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks import bench_gateway, rig
from benchmarks.bench_gateway import Case
from benchmarks.ledger_page import Gateway
from benchmarks.rig import Load, RigError, Sample

from commonpool.core.model import UsageRecord
from commonpool.store.journal import Journal

CASE = Case("1 KB answers, about 1,000 a second", Load(64, think_ms=64))
SECONDS = 4


def gateway(backlog: Iterable[UsageRecord], rounds: int) -> Gateway:
    """Starts the product with records in its journal, as after a time without its store, and asks it meanwhile."""
    rig.settle()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-ledger-")))
        journal = Journal(folder / "var" / "journal")
        for record in backlog:
            journal.append(record)
        appended = journal.appended
        journal.close()
        engine = stack.enter_context(rig.engine(0.0))
        product = bench_gateway.product(stack, folder, engine)
        requests = bench_gateway.prepared(folder, CASE, product)

        def measure() -> Sample:
            return rig.measure(product.pid, product.url, CASE.load, SECONDS, requests)

        def left() -> int:
            return len(list((folder / "var" / "journal").glob("*.journal")))

        measure()  # warms up
        busy: list[Sample] = []
        before = left()
        while len(busy) < rounds:
            busy.append(measure())
            if left() < 2:
                raise RigError(
                    f"{appended} records were worked off before {rounds} rounds of {SECONDS} s were over; take more."
                )
        segments_per_s = (before - left()) / (rounds * (SECONDS + rig.REST_S))
        while left() > 1:
            measure()
        quiet = [measure() for _ in range(rounds)]
    return Gateway(
        records_per_s=int(segments_per_s * appended / before),
        requests_per_s=statistics.median(sample.per_s for sample in busy),
        p50_ms=statistics.median(sample.p50_ms for sample in busy),
        p99_ms=statistics.median(sample.p99_ms for sample in busy),
        quiet_p50_ms=statistics.median(sample.p50_ms for sample in quiet),
        quiet_p99_ms=statistics.median(sample.p99_ms for sample in quiet),
    )
