"""The console's own files: styles, scripts, and what is vendored. Their address has a digest, so browsers keep them."""

import hashlib
from importlib import resources
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from commonpool.api.http import SAFE

KEPT: Final = {**SAFE, "cache-control": "public, max-age=31536000, immutable"}
KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class Files(msgspec.Struct, frozen=True):
    """Where each file is served, by its name, and the routes that serve them."""

    addresses: dict[str, str]
    routes: tuple[BaseRoute, ...]


def load() -> Files:
    """Every file of the folders `files` and `files/vendor` whose kind is known."""
    addresses: dict[str, str] = {}
    routes: list[BaseRoute] = []
    folder = resources.files("commonpool.console") / "files"
    for file in (*folder.iterdir(), *(folder / "vendor").iterdir()):
        kind = KINDS.get(file.name.rpartition(".")[2])
        if kind is None:
            continue
        content = file.read_bytes()
        address = f"/files/{hashlib.sha256(content).hexdigest()[:12]}/{file.name}"
        addresses[file.name] = address
        routes.append(Route(address, Response(content, headers=KEPT, media_type=kind)))
    return Files(addresses, tuple(routes))
