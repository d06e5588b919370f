"""Ten million random life cycles, and whether the books sum to zero: `make bench-books`.

    python -m benchmarks.bench_books [--cycles N] [--first SEED]

Every world (`book_cycles`) checks itself; the first that is wrong ends the run, and says its seed. A run of fewer
cycles than the whole writes no page.
"""

import argparse
import sys
import textwrap
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import machine
from benchmarks.book_cycles import DOWN_NS, HOURS, World

from commonpool.core.model import NS_PER_S
from commonpool.core.pricing import COST_UNIT

PAGE = Path(__file__).parents[1] / "docs" / "results" / "books.md"
FULL = 10_000_000
CYCLES_OF_A_WORLD = 2000
REPORTED_EVERY = 100  # worlds


def measure(cycles: int, first: int, *, loud: bool = False) -> Counter[str]:
    """What happened in worlds from seed `first` on, until there were so many cycles. Raises where books are wrong."""
    tally: Counter[str] = Counter()
    seed = first
    while tally["cycles"] < cycles:
        try:
            tally += World(seed, CYCLES_OF_A_WORLD).run()
        except AssertionError as error:
            raise AssertionError(f"The books of the world with seed {seed} are wrong.") from error
        seed += 1
        if loud and not (seed - first) % REPORTED_EVERY:
            print(f"{tally['cycles']:,} cycles", file=sys.stderr, flush=True)
    tally["worlds"] = seed - first
    return tally


ROWS = (
    ("completed", "completed"),
    ("cancelled by the client", "cancelled"),
    ("failed at last", "failed"),
    ("failed and tried again", "retried"),
    ("lost with its node, and run again elsewhere", "migrated"),
    ("sent away with its state saved, and resumed", "preempted"),
    ("ended badly by its own command", "exited"),
    ("refused", "refused"),
)
PUT_RIGHT = (
    ("heard of only hours later", "late"),
    ("voided, since the product was killed under it", "voided"),
    ("told again after the product was killed", "told again"),
    ("told again with other content, which was refused", "contradicted"),
    ("postings about an hour that was closed", "corrections"),
)


def page(tally: Counter[str], seconds: float, when: str) -> str:
    """The whole page."""

    def table(rows: tuple[tuple[str, str], ...]) -> list[str]:
        return [f"| {words} | {tally[name]:,} |" for words, name in rows]

    words = f"""`make bench-books` writes this page: {tally["cycles"]:,} random life cycles of requests and jobs in
        {tally["worlds"]:,} worlds of one pool each, over the end of a month that changes the price. In each world work
        begins for {HOURS} hours, and the product is killed once, for up to {DOWN_NS // (60 * NS_PER_S)} minutes. In
        every one of the {tally["hours"]:,} hours that were closed"""
    laws = (
        "what the pool supplied is capacity × time to the nanosecond, and somebody paid for all of it;",
        "each attempt is in the books once, however often it was told, at the price of each hour that it ran in;",
        "what is heard of late, or is not charged after all, comes to what it would have been if known at once;",
        "all accounts sum to zero, and nobody was charged less than nothing for anything.",
    )
    gpu_hours = tally["milli_gpu_ns"] // COST_UNIT
    how = f"""{gpu_hours:,} GPU-hours in {tally["postings"]:,} postings; all balances together: 0.
        The product's own code closes the hours, over its store in memory. A model beside it enters attempt by attempt,
        pending at dispatch, posted or voided at the end; and what each tenant owes is worked out a third time from the
        records, without any hours. All three agree to the unit."""
    cost = f"""{seconds / 60:.1f} minutes of one core, {seconds / tally["cycles"] * 1e6:.0f} µs a cycle, making it
        included. {when}, {machine.cores()}; {machine.python()}."""
    lines = [
        "# The books",
        "",
        _wrapped(words),
        "",
        *(f"- {law}" for law in laws),
        "",
        _wrapped(how),
        "",
        "| attempts, as they were meant to end | |",
        "|---|--:|",
        *table(ROWS),
        "",
        "| put right | |",
        "|---|--:|",
        *table(PUT_RIGHT),
        "",
        _wrapped(cost),
        "",
    ]
    return "\n".join(lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cycles", type=int, default=FULL)
    options.add_argument("--first", type=int, default=1, help="the first world's seed")
    chosen = options.parse_args()
    began = time.process_time()
    tally = measure(chosen.cycles, chosen.first, loud=True)
    text = page(tally, time.process_time() - began, datetime.now(UTC).date().isoformat())
    print(text)
    if chosen.cycles >= FULL:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
