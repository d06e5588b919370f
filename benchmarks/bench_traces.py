"""What a trace costs: on the path of a request, and on the thread that makes spans of it.

    python -m benchmarks.bench_traces [--rounds 5]

CPU time of the process, so that what else runs on the machine counts for little; figures are medians of the rounds. A
traced request has three spans. The path is what a gateway calls: begin, the header for the engine, the end of the
attempt, the end. Without --print the figures go into docs/results/traces.md.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from commonpool.core.model import Outcome, Request, Usage
from commonpool.observe.exporting import BATCH_MAX
from commonpool.observe.spans import payload, spans
from commonpool.observe.traces import Attempt, Ended, Traces, Track

PAGE: Final = Path(__file__).parents[1] / "docs" / "results" / "traces.md"
REQUESTS: Final = 20_000
PARENT: Final = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TEXT: Final = """# What traces cost

`python -m benchmarks.bench_traces` wrote this page: CPU time for each request, medians of {rounds} rounds. The gateway
itself spends some hundred microseconds on a request ([figures](gateway.md)).

| | µs of CPU a request |
|---|---|
| no `observe.traces.endpoint` | 0: two comparisons |
| not sampled, on the request's path | {off:.1f} |
| sampled, on the request's path | {on:.1f} |
| sampled, a client's trace goes on, on the request's path | {parent:.1f} |
| its three spans, on the exporter's thread | {thread:.0f} |

The thread lets go of the interpreter after every four requests, so that none waits for it for longer than a fraction of
a millisecond. At 1,000 requests a second, 10 % of them sampled, all of it is {part:.1f} % of a core.
"""


def request(number: int) -> Request:
    return Request(f"{number:x}", "support", "helpdesk", "tiny", "interactive", "chat", 7, tokens_out_max=64)


def serve(traces: Traces, number: int, parent: bytes | None) -> None:
    """One request as the gateway's relay tells of it."""
    track = traces.begin(request(number), parent, None)
    if not isinstance(track, Track):
        return
    track.lines(1)
    now = time.time_ns()
    usage = Usage(7, 0, 64)
    track.ended(
        Attempt(1, "vllm", "tiny", "tiny-0", "10.0.0.5", 80, (), now, now, now, Outcome.COMPLETED, 200, "", usage)
    )
    track.over(200)


def cpu_us(work: Callable[[], object], count: int) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) / count * 1e6


def path(permille: int, parent: bytes | None, taken: list[Ended]) -> float:
    traces = Traces(taken.append, permille, time.time_ns)
    empty = cpu_us(lambda: [request(number) for number in range(REQUESTS)], REQUESTS)

    def work() -> None:
        for number in range(REQUESTS):
            serve(traces, number, parent)

    return cpu_us(work, REQUESTS) - empty


def thread(taken: list[Ended]) -> float:
    def work() -> None:
        for start in range(0, len(taken), BATCH_MAX):
            payload([span for each in taken[start : start + BATCH_MAX] for span in spans(each)], {"service.name": "x"})

    return cpu_us(work, len(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--print", action="store_true", help="only show the page")
    args = parser.parse_args()
    figures: dict[str, list[float]] = {"off": [], "on": [], "parent": [], "thread": []}
    for _ in range(max(1, args.rounds)):
        taken: list[Ended] = []
        figures["off"].append(path(0, None, []))
        figures["on"].append(path(1000, None, taken))
        figures["parent"].append(path(0, PARENT, []))
        figures["thread"].append(thread(taken))
    off, on, parent, made = (statistics.median(figures[name]) for name in ("off", "on", "parent", "thread"))
    part = (900 * off + 100 * (on + made)) / 1e6 * 100
    text = TEXT.format(rounds=args.rounds, off=off, on=on, parent=parent, thread=made, part=part)
    print(text)
    if not args.print:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
