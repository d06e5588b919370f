"""A browser at the console of a fake product, for tests of single pages: no network, no JavaScript."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from commonpool import console
from commonpool.api import routes
from tests.api.caller import TestClient
from tests.api.fakes import FakeOperations

BASE = "http://127.0.0.1:8081"
OWN_PAGE = {"origin": BASE}  # what a browser sends with a form of ours


@contextmanager
def visiting(
    product: FakeOperations, peer: str = "127.0.0.1", *, within_s: float = 120, **headers: str
) -> Iterator[TestClient]:
    """A client that comes from this address; from the machine itself it is a platform-admin.

    Pages wait `within_s` for their slow parts.
    """
    application = routes.application(product, console.routes(product.now_ns, within_s))
    with TestClient(application, base_url=BASE, client=(peer, 50000), headers=headers) as client:
        yield client


def words(page: str) -> list[str]:
    """The text of a page, piece by piece, as it stands between tags."""
    shown = re.sub(r"<(script|style|title)\b.*?</\1>", "", page, flags=re.DOTALL)
    return [piece.strip() for piece in re.split(r"<[^>]*>", shown) if piece.strip()]
