"""Pictures of the console's pages for the docs: docs/images/console-*.png.

    python -m benchmarks.console_pictures [--folder FOLDER] [NAME ...]

It fills a small store with a month of work (FOLDER keeps it), starts the product on it under load, and takes each page
as who runs the platform sees it, or those that are named.
"""

import argparse
import contextlib
import struct
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench_console import CHROMIUM, Scale, asking, engine, running
from playwright.sync_api import Browser, sync_playwright
from tests.acceptance.product import Product

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 375, "height": 812}
SETTLE_MS = 4000
SIZE_MAX = 150_000
TENANTS = ("support", "research", "marketing", "logistics", "legal", "platform-team")
SCALE = Scale(len(TENANTS), 3, 20_000, 720, 0, 0)

# Name of the picture, page, and how it is looked at.
PICTURES: tuple[tuple[str, str, str, bool], ...] = (
    ("overview", "/", "light", False),
    ("overview-dark", "/", "dark", False),
    ("overview-phone", "/", "light", True),
    ("platform", "/platform", "light", False),
    ("tenants", "/tenants", "light", False),
    ("tenant", "/tenants/support", "light", False),
    ("models", "/models", "light", False),
    ("model", "/models/chat", "light", False),
    ("replicas", "/replicas", "light", False),
    ("devices", "/devices", "light", False),
    ("jobs", "/jobs", "light", False),
    ("loans", "/loans", "light", False),
    ("decisions", "/decisions", "light", False),
    ("alerts", "/alerts", "light", False),
    ("requests", "/requests", "light", False),
    ("request", "", "light", False),
    ("bills", "/bills", "light", False),
    ("advice", "/advice", "light", False),
    ("keys", "/keys", "light", False),
    ("audit", "/audit", "light", False),
    ("settings", "/settings", "light", False),
    ("playground", "/playground", "light", False),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "console-pictures")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    with (
        engine(chunks=20, interval_ms=300) as address,
        running(options.folder, SCALE, address, TENANTS) as product,
        busy(product),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-lcd-text"])
        for name, path, theme, phone in PICTURES:
            if not options.names or name in options.names:
                take(browser, product.control + (path or latest(product)), name, theme, phone=phone)
        browser.close()


def take(browser: Browser, url: str, name: str, theme: str, *, phone: bool) -> None:
    context = browser.new_context(viewport=NARROW if phone else WIDE, timezone_id="Asia/Shanghai", locale="en-GB")  # type: ignore[arg-type]
    opened = context.new_page()
    opened.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    answer = opened.goto(url)
    opened.wait_for_timeout(SETTLE_MS)  # for figures that come with the first refresh
    file = IMAGES / f"console-{name}.png"
    file.write_bytes(smaller(opened.screenshot()))
    context.close()
    size = file.stat().st_size
    status = answer.status if answer else 0
    print(f"{file.name}: {status}, {size // 1000} KB{' - too large' if size > SIZE_MAX else ''}", flush=True)


def smaller(png: bytes) -> bytes:
    """The same picture with the 256 colours that it has most of: half of the bytes or less, and text looks alike."""
    width, height, rows = _pixels(png)
    counts = Counter(row[at : at + 3] for row in rows for at in range(0, 3 * width, 3))
    palette = [colour for colour, _ in counts.most_common(256)]
    known = {colour: at for at, colour in enumerate(palette)}
    alike: dict[bytes, int] = {}  # shades that differ little are one, so that few have to be looked for
    for colour in counts:
        if colour not in known:
            shade = bytes(channel & 0xF0 | 8 for channel in colour)
            if shade not in alike:
                alike[shade] = min(range(len(palette)), key=lambda at: _apart(palette[at], shade))
            known[colour] = alike[shade]
    packed = b"".join(b"\0" + bytes(known[row[at : at + 3]] for at in range(0, 3 * width, 3)) for row in rows)
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", b"".join(palette)),
        (b"IDAT", zlib.compress(packed, 9)),
        (b"IEND", b""),
    ]
    made = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    ]
    return png[:8] + b"".join(made)


def _apart(one: bytes, other: bytes) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and rows of a PNG with eight bits a channel, RGB; what is transparent in it is left out."""
    at, body, head = 8, b"", b""
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        head = content if kind == b"IHDR" else head
        body += content if kind == b"IDAT" else b""
        at += 12 + size
    width, height, _, colour = struct.unpack(">IIBB", head[:10])
    step = {2: 3, 6: 4}[colour]
    data, rows = zlib.decompress(body), []
    before = bytearray(step * width)
    for number in range(height):
        start = number * (step * width + 1)
        row = _unfiltered(data[start], bytearray(data[start + 1 : start + 1 + step * width]), before, step)
        before = row
        rows.append(bytes(row) if step == 3 else b"".join(row[x : x + 3] for x in range(0, len(row), 4)))
    return width, height, rows


def _unfiltered(kind: int, row: bytearray, above: bytearray, step: int) -> bytearray:
    """A row as it was before its filter (PNG specification, chapter 9)."""
    match kind:
        case 0:
            return row
        case 2:
            return bytearray((value + up) & 255 for value, up in zip(row, above, strict=True))
    for at, value in enumerate(row):
        left, up, corner = (row[at - step], above[at], above[at - step]) if at >= step else (0, above[at], 0)
        if kind == 1:
            near = left
        elif kind == 3:
            near = (left + up) // 2
        else:
            to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            near = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
        row[at] = (value + near) & 255
    return row


def latest(product: Product) -> str:
    """The page of a request that has ended."""
    until_ns = product.get("/admin/v1/status")["now_ns"]
    records = product.get(f"/admin/v1/records?since_ns={until_ns - 600 * 10**9}")["records"]
    done = [each["request_id"] for each in records if each["outcome"] == "completed" and each["wait_ns"]]
    return f"/requests/{(done or [each['request_id'] for each in records])[-1]}"


@contextlib.contextmanager
def busy(product: Product) -> Iterator[None]:
    """More than one tenant's guarantee can do, so that there are loans and a queue; and a few of the others'."""
    with asking(product, "research", 60), asking(product, "support", 2), asking(product, "legal", 1):
        yield


if __name__ == "__main__":
    main()
