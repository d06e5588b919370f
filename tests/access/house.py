"""People over a store in memory, and how they come."""

import asyncio
import ssl
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
from argon2 import PasswordHasher

from commonpool.access.passwords import Passwords
from commonpool.access.people import People, Visit
from commonpool.access.web import Web
from commonpool.config.structs import Access, Oidc, Role
from commonpool.store.memory import MemoryStore
from tests.access.issuer import NOW_S, SECRET

T = TypeVar("T")

FAST = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
SECOND = 10**9
PASSWORD = "correct horse battery"
ROLES = (
    Role("operator", None, "group", "/gpu/operators"),
    Role("tenant-admin", "support", "email", "ann@house.example"),
    Role("developer", "support", "subject", "machine-7"),
    Role("viewer", None, "account", "bo"),
    Role("finance", None, "account", "erp"),
)


def plain_web(call_s: float = 60, destinations: tuple[str, ...] | None = None) -> Web:
    """One that trusts nobody's certificate, and so is made at once."""
    return Web(destinations, trusted=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), call_s=call_s)


class House:
    """People and what they depend on; `run` runs stories of them one after the other, on one loop."""

    def __init__(self, oidc: Oidc | None) -> None:
        self.now = NOW_S * SECOND
        self.access = Access(url="http://127.0.0.1:8081", oidc=oidc, roles=ROLES)
        self.store = MemoryStore()
        self._runner = asyncio.Runner()
        self._all: list[People] = []
        self.people = self.another()

    def another(self) -> People:
        """People of another process over the same store."""
        people = People(
            self.store,
            lambda: self.now,
            lambda: self.access,
            passwords=Passwords(FAST),
            web=plain_web(),
            environment={"OIDC_SECRET": SECRET},
        )
        self._all.append(people)
        return people

    def change(self, **fields: Any) -> None:
        """Apply another configuration."""
        self.access = msgspec.structs.replace(self.access, **fields)

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(story)

    def close(self) -> None:
        for people in self._all:
            self._runner.run(people.close())
        self._runner.close()


def visit(
    cookie: str = "",
    headers: Mapping[str, str] | None = None,
    *,
    address: str = "192.0.2.7",
    tls: bool = False,
    here: bool = True,
    host: str = "127.0.0.1:8081",
) -> Visit:
    """From a browser at http://127.0.0.1:8081 unless said otherwise."""
    return Visit(address, tls, here, {"host": host, **({"cookie": cookie} if cookie else {}), **(headers or {})})


def sent(set_cookie: str) -> str:
    """What a browser sends back of a `Set-Cookie`."""
    return set_cookie.partition(";")[0]
