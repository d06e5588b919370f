"""The console over 200 tenants and a month of data: how long its first screens take, what they weigh, what they cost.

    python -m benchmarks.bench_console [--quick] [--folder FOLDER]

It fills a store (minutes; FOLDER keeps it for the next run), starts the product on it, and writes
docs/results/console.md. --quick takes little of everything and writes no page.
"""

import argparse
import contextlib
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import psutil
from benchmarks import console_data, machine
from playwright.sync_api import Browser, sync_playwright
from tests.acceptance.product import Product

from commonpool.config.loading import parse
from commonpool.console.frame import SLOW_S
from commonpool.core.model import NS_PER_HOUR
from commonpool.store.sqlite import SqliteStore

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "results" / "console.md"
CHROMIUM = "/usr/bin/chromium"
SCREENS = ("/", "/platform")
FIRST_MS_MAX = 300
WEIGHT_KB_MAX = 300
WATCH_PERCENT_MAX = 1.0
ASKED_PER_S = 5
RESTS_PERCENT = 5.0
UNJUDGED = "not judged, since it was busy with something else while nobody watched."


class Scale(msgspec.Struct, frozen=True):
    """How much there is of everything."""

    tenants: int
    nodes: int
    requests: int
    hours: int
    rounds: int
    watched_s: int


WHOLE = Scale(200, 40, 300_000, 720, 20, 60)
QUICK = Scale(8, 3, 2000, 48, 3, 10)


class Screen(msgspec.Struct, frozen=True):
    """One page: from the request to its last byte, as a browser paints it, and what is loaded for it in KB."""

    path: str
    first_ms: float
    aged_ms: float
    median_ms: float
    p95_ms: float
    cpu_ms: float
    painted_ms: float
    page_kb: float
    whole_kb: float


class Found(msgspec.Struct, frozen=True):
    """What was measured; CPU in percent of one core, with nobody watching and with two browsers."""

    scale: Scale
    screens: tuple[Screen, ...]
    alone_percent: float
    watched_percent: float
    machine_load: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="little of everything; writes no page")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "bench-console")
    options = parser.parse_args()
    scale = QUICK if options.quick else WHOLE
    folder: Path = options.folder / ("quick" if options.quick else "whole")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or templates are compiled at each start
    with engine() as address, running(folder, scale, address) as product, chromium() as browser:
        screens = tuple(screen(product, browser, path, scale.rounds) for path in SCREENS)
        with asking(product, _departments(1)[0]):
            alone = watched(product, browser, 0, scale.watched_s)
            found = Found(scale, screens, alone, watched(product, browser, 2, scale.watched_s), os.getloadavg()[2])
    print(page(found))
    if not options.quick:
        PAGE.write_text(page(found))


# -- what is measured --------------------------------------------------------------------------------------------------


def screen(product: Product, browser: Browser, path: str, rounds: int) -> Screen:
    first, _ = asked(product, path)
    while _cpu_percent(product, 1) > RESTS_PERCENT:  # what the first page did not wait for is worked out
        continue
    before = _cpu_s(product)
    times, pages = zip(*(asked(product, path) for _ in range(rounds)), strict=True)
    cpu = (_cpu_s(product) - before) / rounds
    content = pages[-1]
    time.sleep(SLOW_S + 1)
    aged, _ = asked(product, path)
    files = set(re.findall(r'(?:href|src)="(/files/[^"]+)"', content.decode()))
    weights = [len(urllib.request.urlopen(product.control + file).read()) for file in files]
    painted = statistics.median(paint(browser, product.control + path) for _ in range(max(3, rounds // 6)))
    return Screen(
        path=path,
        first_ms=first,
        aged_ms=aged,
        median_ms=statistics.median(times),
        p95_ms=sorted(times)[int(0.95 * (len(times) - 1))],
        cpu_ms=1000 * cpu,
        painted_ms=painted,
        page_kb=len(content) / 1000,
        whole_kb=(len(content) + sum(weights)) / 1000,
    )


def asked(product: Product, path: str) -> tuple[float, bytes]:
    """How long a page took, in ms, and the page."""
    began = time.perf_counter()
    with urllib.request.urlopen(product.control + path, timeout=120) as answer:
        content = answer.read()
    return 1000 * (time.perf_counter() - began), content


def _cpu_s(product: Product) -> float:
    """CPU time that the product has taken."""
    assert product.process is not None
    return float(sum(psutil.Process(product.process.pid).cpu_times()[:2]))


def paint(browser: Browser, url: str) -> float:
    """From navigation to the first paint of content, by a browser that has none of the files yet, in ms."""
    context = browser.new_context()
    try:
        opened = context.new_page()
        opened.goto(url)
        while not (painted := opened.evaluate("performance.getEntriesByName('first-contentful-paint')")):
            opened.wait_for_timeout(20)  # wait_for_function would be refused by the pages' content security policy
        return float(painted[0]["startTime"])
    finally:
        context.close()


def watched(product: Product, browser: Browser, browsers: int, seconds: int) -> float:
    """The CPU of the product in percent of a core, while so many browsers have its first screen open."""
    contexts = [browser.new_context() for _ in range(browsers)]
    for context in contexts:
        context.new_page().goto(product.control + "/")
    contexts[0].pages[0].wait_for_timeout(5000) if contexts else time.sleep(5)
    before = _cpu_s(product)
    if contexts:
        contexts[0].pages[0].wait_for_timeout(1000 * seconds)
    else:
        time.sleep(seconds)
    used = _cpu_s(product) - before
    for context in contexts:
        context.close()
    return 100 * used / seconds


# -- what it stands on -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def engine(chunks: int = 20, interval_ms: int = 0) -> Iterator[str]:
    """An engine's address."""
    options = ["--port", "0", "--chunks", str(chunks), "--interval-ms", str(interval_ms)]
    with subprocess.Popen(
        [sys.executable, str(HERE / "mock_engine.py"), *options], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


@contextlib.contextmanager
def running(folder: Path, scale: Scale, address: str, names: Sequence[str] = ()) -> Iterator[Product]:
    """The product on a store that has the month; one from before is used again where it is whole."""
    world = console_data.World(
        tenants=[(name, 1 + at % 2) for at, name in enumerate(names or _departments(scale.tenants))],
        nodes=scale.nodes,
        requests=scale.requests,
        hours=scale.hours,
        until_ns=time.time_ns() // NS_PER_HOUR * NS_PER_HOUR,
    )
    text = console_data.configuration(world, address)
    filled = folder / "filled"
    whole = folder / "whole"
    if not whole.exists():
        shutil.rmtree(folder, ignore_errors=True)
        (filled / "var").mkdir(parents=True)
        print(f"filling {folder}", flush=True)
        with contextlib.closing(SqliteStore(filled / "var")) as store:
            console_data.fill(store, parse(text), world)
        with started(Product(filled, text)):
            print("counting the waits of its records", flush=True)
        whole.touch()
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(filled / "var", run / "var")
    _forget_configurations(run / "var")
    with started(Product(run, text)) as product:
        yield product


def _forget_configurations(state: Path) -> None:
    """What it was filled with listens elsewhere, and the product would say so on every page."""
    with contextlib.closing(sqlite3.connect(state / "commonpool.db")) as store, store:
        store.execute("DELETE FROM config_history")


@contextlib.contextmanager
def started(product: Product) -> Iterator[Product]:
    """The product, when all is made that it makes of its records in the background."""
    product.keys = {"": ""}
    try:
        product.start()
        settle(product)
        yield product
    finally:
        product.stop()


def _departments(count: int) -> list[str]:
    return [f"dept-{number + 1:03d}" for number in range(count)]


def settle(product: Product) -> None:
    """Wait until what is made of the records in the background is made, and the product rests."""
    deadline = time.monotonic() + 1800
    since_ns = time.time_ns() - NS_PER_HOUR
    complete = False
    while not complete or _cpu_percent(product, 10) > RESTS_PERCENT:
        with contextlib.suppress(TimeoutError):
            complete = complete or product.get(f"/admin/v1/waits?by=tier&since_ns={since_ns}")["complete"]
        if time.monotonic() > deadline:
            raise SystemExit("the product still works at its records after half an hour")


def _cpu_percent(product: Product, seconds: float) -> float:
    """What it takes of a core in the next so many seconds."""
    before = _cpu_s(product)
    time.sleep(seconds)
    return 100 * (_cpu_s(product) - before) / seconds


@contextlib.contextmanager
def asking(product: Product, tenant: str, clients: int = 1) -> Iterator[None]:
    """Requests of a tenant, so that there is something to watch: so many clients, `ASKED_PER_S` of each at most."""
    key = product.cli("keys", "create", "--tenant", tenant, "--app", console_data.APPS[0])["key"]
    body = b'{"model": "chat", "messages": [{"role": "user", "content": "Hello"}], "stream": true}'
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    over = threading.Event()

    def ask() -> None:
        while not over.wait(1 / ASKED_PER_S):
            request = urllib.request.Request(product.gateway + "/v1/chat/completions", data=body, headers=headers)
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        raise SystemExit(f"this benchmark needs {CHROMIUM} (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def page(found: Found) -> str:
    """docs/results/console.md."""
    scale = found.scale
    added = found.watched_percent - found.alone_percent
    rows = "\n".join(
        f"| `{each.path}` | {each.first_ms:,.0f} | {each.aged_ms:,.0f} | {each.median_ms:,.0f} | {each.p95_ms:,.0f}"
        f" | {each.cpu_ms:,.0f} | {each.painted_ms:,.0f} | {each.page_kb:,.0f} | {each.whole_kb:,.0f} |"
        for each in found.screens
    )
    slowest = max(max(each.p95_ms, each.aged_ms) for each in found.screens)
    judged = _kept(added < WATCH_PERCENT_MAX) if added >= 0 else UNJUDGED
    heaviest = max(each.whole_kb for each in found.screens)
    return f"""\
# The console: how fast, how heavy, what watching costs

Made by `make bench-console` on {machine.cores()}, {machine.python()}, with a load average of
{found.machine_load:.1f} over the last quarter of an hour: above 2 others had the cores, too, and made it slower.

A store with {scale.requests:,} requests of {scale.tenants} tenants in {scale.hours // 24} days, all hours closed;
a pool of {scale.nodes} nodes with {console_data.NODE_GPUS} GPUs each. The reader may see everything: that is the most
there is to render.

| page | first, ms | 3 minutes later, ms | median, ms | p95, ms | CPU, ms | painted, ms | page, KB | with files, KB |
|---|---|---|---|---|---|---|---|---|
{rows}

Times are from the request to the last byte over loopback, one after the other; *first* is after the start of the
product, when nothing of the month has been worked out yet and parts of the page say so; *3 minutes later* all that the
console keeps is too old, and asked again; *painted* is the first paint of content in Chromium with an empty cache.
Sizes are not compressed.

- Every screen in under {FIRST_MS_MAX} ms (p95, and 3 minutes later): {_kept(slowest < FIRST_MS_MAX)}
- Everything together under {WEIGHT_KB_MAX} KB: {_kept(heaviest < WEIGHT_KB_MAX)}
- Two browsers left open on the first screen for {scale.watched_s} s, while up to {ASKED_PER_S} requests a second are
  served: the product took {found.watched_percent:.2f} % of a core, without {found.alone_percent:.2f} %. They added
  {added:.2f} %; the goal is less than {WATCH_PERCENT_MAX:.0f} %: {judged}
"""


def _kept(kept: bool) -> str:
    return "met." if kept else "missed."


if __name__ == "__main__":
    main()
