"""The figures of `bench_gateway` as Markdown, and their place in docs/results/gateway.md."""

import importlib.metadata
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import machine
from benchmarks.rig import RigError, Sample

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "gateway.md"
BEGIN = "<!-- figures: written by benchmarks/bench_gateway.py, do not edit -->"
END = "<!-- end of figures -->"
PACKAGES = ("uvloop", "httptools", "msgspec", "uvicorn", "aiohttp")


def figures(
    samples: Mapping[tuple[str, str], Sequence[Sample]],
    kept: Sequence[str],
    *,
    products: Sequence[str],
    baseline: str,
    rounds: int,
    seconds: int,
) -> str:
    """A table for each case, then what they were measured on. Keys of `samples` are (case, system), in order."""
    lines: list[str] = []
    for case in dict.fromkeys(name for name, _ in samples):
        rows = {system: runs for (name, system), runs in samples.items() if name == case}
        lines += [f"**{case}**", "", "| | requests/s | CPU µs/request | p50 ms | p99 ms |", "|---|--:|--:|--:|--:|"]
        lines += [_row(system, runs) for system, runs in rows.items()]
        if baseline in rows:
            lines.append("")
            lines += [_ratio(rows[each], rows[baseline], each, baseline) for each in products if each in rows]
        lines.append("")
    others = statistics.median(run.others for runs in samples.values() for run in runs)
    lines += [
        f"Medians of {rounds} rounds of {seconds} s; a ratio is the median of the rounds' ratios, with their range.",
        f"Other processes had {others:.0%} of the proxy's core (median of all runs).",
        "",
        "Kept by the product during this, as `commonpool usage` tells it: " + "; ".join(kept) + ".",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {machine.cores()}; {_versions()}.",
    ]
    return "\n".join(lines)


def write(text: str) -> None:
    """Put the figures into the page, in place of those that are there."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if BEGIN not in page or END not in page:
        raise RigError(f"{PAGE} has no place for the figures; it needs the lines {BEGIN} and {END}.")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _row(system: str, runs: Sequence[Sample]) -> str:
    def middle(pick: Callable[[Sample], float]) -> float:
        return statistics.median(map(pick, runs))

    return (
        f"| {system} | {middle(lambda run: run.per_s):,.0f} | {middle(lambda run: run.cpu_us):.0f}"
        f" | {middle(lambda run: run.p50_ms):.1f} | {middle(lambda run: run.p99_ms):.1f} |"
    )


def _ratio(ours: Sequence[Sample], theirs: Sequence[Sample], product: str, baseline: str) -> str:
    """How much further one core goes: what the baseline spends on a request, by what the product does."""
    ratios = [other.cpu_us / own.cpu_us for own, other in zip(ours, theirs, strict=True)]
    return (
        f"CPU of {baseline} by that of {product}: {statistics.median(ratios):.2f}"
        f" ({min(ratios):.2f} to {max(ratios):.2f})."
    )


def _versions() -> str:
    found = [machine.python()]
    found += [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    for program, option in (("wrk", "-v"), ("nginx", "-v")):
        path = shutil.which(program, path="/usr/sbin:/usr/local/bin:/usr/bin:/bin")
        if path is not None:
            said = subprocess.run([path, option], capture_output=True, text=True, check=False)
            number = re.search(r"\d+\.\d+[.\d]*", said.stdout + said.stderr)
            found.append(f"{program} {number[0] if number else ''}".rstrip())
    return ", ".join(found)
