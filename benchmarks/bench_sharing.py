"""What sharing gives a department, measured on the real embedded engine: `make bench-sharing`.

Research floods with 64 parallel batch requests; support, guaranteed half, asks one interactive question at a time. Its
wait is set beside the residual time of what ran when it came, which is the least that can be had without cutting
anybody off, and beside what one queue for all (first come, first served) would have made it wait.
"""

import tempfile
from pathlib import Path
from typing import Any

from tests.acceptance.product import running
from tests.acceptance.test_sharing import CONFIG, ask, ended_ns, started_ns, use_up, wait_for

QUESTIONS = 20
RESULT = Path(__file__).parents[1] / "docs" / "results" / "sharing.md"


def quantile(values: list[int], percent: int) -> float:
    """Nearest rank, in seconds."""
    ordered = sorted(values)
    return ordered[(len(ordered) * percent + 99) // 100 - 1] / 1e9


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), CONFIG) as product:
        flood = use_up(product, "research", "batch", 64, tokens=24)
        wait_for(product, "research", in_use_milli_gpu=4000, waiting=20)
        for _ in range(QUESTIONS):
            ask(product, "support", "interactive")
        for thread in flood:
            thread.join()
        rows = product.records()
        loans = product.get("/admin/v1/loans?since_ns=0")["loans"]
    print(report(rows, loans))
    RESULT.write_text(report(rows, loans))


def report(rows: list[dict[str, Any]], loans: list[dict[str, Any]]) -> str:
    research = [r for r in rows if r["tenant"] == "research"]
    support = [r for r in rows if r["tenant"] == "support"]
    waits, residuals, fifo = [], [], []
    for own in support:
        arrived = own["arrived_ns"]
        busy = [ended_ns(r) - arrived for r in research if started_ns(r) <= arrived < ended_ns(r)]
        ahead = [r for r in research if r["arrived_ns"] < arrived < started_ns(r)]
        if ahead:
            waits.append(own["wait_ns"])
            residuals.append(min(busy))
            fifo.append(max(started_ns(r) for r in ahead) - arrived)
    (loan,) = [each for each in loans if each["lender"] == "support" and each["borrower"] == "research"]
    cut = sum(r["outcome"] != "completed" for r in rows)
    return f"""# What sharing gives a department

`make bench-sharing`, on two cores, one thread for the engine (SmolLM2-135M, four slots). Research floods with 64
parallel batch requests; support, guaranteed half, asks {QUESTIONS} interactive questions, one at a time. Shown are the
{len(waits)} that came while others waited.

| seconds | p50 | p99 |
|---|--:|--:|
| support's wait | {quantile(waits, 50):.2f} | {quantile(waits, 99):.2f} |
| until the first of what ran then ended | {quantile(residuals, 50):.2f} | {quantile(residuals, 99):.2f} |
| in one queue for all, at least | {quantile(fifo, 50):.2f} | {quantile(fifo, 99):.2f} |

Cut off: {cut} of {len(rows)} requests. Research borrowed from support {loan["loans"]} times,
{loan["length_ns_mean"] / 1e9:.1f} s each in the mean, {float(loan["gpu_seconds"]):.0f} GPU-seconds in all.
"""


if __name__ == "__main__":
    main()
