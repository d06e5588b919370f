"""The product over PostgreSQL: the database goes away under load and comes back, then the product does."""

import signal
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.acceptance.product import WITHIN_S, Product, running
from tests.acceptance.test_durability import CONFIG, engine, load
from tests.store.server import PostgresServer


def until(finished: set[str], count: int) -> None:
    """Waits until so many more have finished."""
    target = len(finished) + count
    deadline = time.monotonic() + WITHIN_S
    while len(finished) < target:
        assert time.monotonic() < deadline, f"{len(finished)} requests have finished, {target} were to"
        time.sleep(0.01)


def until_said(product: Product, what: str) -> None:
    """Waits until it is in the log."""
    deadline = time.monotonic() + WITHIN_S
    while what not in product.output.read_text():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_requests_go_on_without_the_database_and_none_is_lost_or_counts_twice(tmp_path: Path) -> None:
    finished: set[str] = set()
    with closing(PostgresServer()) as server, engine() as port:
        schema = server.create()
        (tmp_path / "url").write_text(server.url(schema))
        config = CONFIG.format(port=port) + "store: {url: file:url}\n"
        with running(tmp_path, config) as product:
            stop = threading.Event()
            threads = [threading.Thread(target=load, args=(product, "support", finished, stop)) for _ in range(3)]
            for thread in threads:
                thread.start()
            until(finished, 100)
            server.kill()
            until(finished, 100)
            until_said(product, "Usage records wait in")
            until(finished, 100)
            server.start()
            until(finished, 100)
            server.kill()
            until(finished, 100)
            product.interrupt(signal.SIGKILL)
            product.wait()
            stop.set()
            for thread in threads:
                thread.join()
            server.start()
            product.start()
            kept: list[tuple[Any, ...]] = []
            before = None
            deadline = time.monotonic() + WITHIN_S
            while kept != before or not finished <= {name for name, _, outcome in kept if outcome == "completed"}:
                assert time.monotonic() < deadline, f"{len(finished)} have finished, {len(kept)} are kept"
                before = kept
                time.sleep(2)
                product.get("/admin/v1/usage?by=tenant&since_ns=0")  # moves the newest into the store
                kept = server.rows("SELECT request_id, attempt, outcome FROM usage ORDER BY 1, 2", schema)
            total = product.cli("usage", "--by", "tenant", "--since", "1h")["total"]
    assert len(kept) == len({(request_id, attempt) for request_id, attempt, _ in kept})
    assert finished <= {request_id for request_id, _, outcome in kept if outcome == "completed"}
    assert total["requests"] == len({request_id for request_id, _, _ in kept})
    assert not (tmp_path / "var" / "commonpool.db").exists()
