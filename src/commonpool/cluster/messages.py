"""What gateways and the core actor say to each other, as bytes (msgpack), so that a batch is one argument of one call.

A gateway's batches are numbered, and so is the news for it. Either side repeats what was not acknowledged, and the
other ignores what it has had: a call that Ray reports as failed may have been performed.
"""

import functools
import ssl
from typing import Final

import msgspec

from commonpool.config.structs import Config
from commonpool.core.effects import Fail, Recall, Refuse
from commonpool.core.events import Arrived, Cancelled, Ended, Recalled, Resumed
from commonpool.core.model import Request, Wait
from commonpool.engines.base import Target
from commonpool.engines.registry import ADAPTERS
from commonpool.gateway.caches import Part
from commonpool.observe.exporting import Became
from commonpool.store.contract import Key
from commonpool.store.prompts import Spoken


class Counted(msgspec.Struct, frozen=True, tag=True):
    """What the gateway has counted since it said so last.

    `answered`: the errors that it answered itself, by code; `slowed`: those that it held back, by tenant and why.
    """

    answered: dict[str, int]
    slowed: list[tuple[str, str, int]]
    traces: Became


class Landed(msgspec.Struct, frozen=True, tag=True):
    """An attempt has landed (`gateway.caches`)."""

    request_id: str
    attempt: int
    ran: bool


Told = Arrived | Recalled | Cancelled | Ended | Counted | Landed


class Batch(msgspec.Struct, frozen=True):
    """What happened at a gateway, in order. `session` is the gateway process's own, `seen` the last news it had."""

    gateway: str
    session: str
    number: int
    seen: int
    events: list[Told]


class Address(msgspec.Struct, frozen=True):
    """A `Target` without what cannot travel."""

    replica_id: str
    host: str
    port: int
    adapter: str
    served_model: str
    base_path: str
    authorization: bytes | None
    tls: bool
    model: str
    build: str
    destinations: tuple[str, ...] | None


class Go(msgspec.Struct, frozen=True, tag=True):
    """Send this request to this replica now; an `Ended` with this attempt follows, whatever happens."""

    request_id: str
    attempt: int
    wait_ns: int
    waits: tuple[Wait, ...]
    target: Address
    part: Part


class KeyChanged(msgspec.Struct, frozen=True, tag=True):
    """From now on the key counts as it is here, a revoked one not at all."""

    key: Key


class Reconfigured(msgspec.Struct, frozen=True, tag=True):
    """Requests that arrive from now on are judged by this configuration."""

    config: bytes


class Readiness(msgspec.Struct, frozen=True, tag=True):
    """Whether the product is ready, or a sentence why not."""

    ready: bool
    why: str


class Logging(msgspec.Struct, frozen=True, tag=True):
    """What these tenants ask, and are answered, is to be told from now on (`Prompts`)."""

    tenants: list[str]


News = Go | Recall | Refuse | Fail | KeyChanged | Reconfigured | Readiness | Logging


class Overheard(msgspec.Struct, frozen=True):
    """What was asked and answered at a gateway, and how many more of each tenant there was no room for."""

    spoken: list[Spoken]
    lost: dict[str, int]


class Reply(msgspec.Struct, frozen=True):
    """The news from number `first` on. `limits` are the rate-limit header lines of keys, as of now; b"" where there
    are none any more. `now_ns` is the core's time, where the call was answered at once.

    `unknown`: the core does not know the session (it was restarted), and nothing of the call was taken in.
    """

    first: int = 1
    news: list[News] = []
    limits: dict[str, bytes] = {}
    unknown: bool = False
    now_ns: int = 0


class Finished(msgspec.Struct, frozen=True):
    """An attempt that ended and whose end may not have been heard: what ran, and how it ended."""

    ran: Resumed
    end: Ended


class Hello(msgspec.Struct, frozen=True):
    """All that a gateway knows, told to a core that does not know it: what ended, what runs, and what waits, in order.

    Of `finished` those whose end asks for a retry wait for their next attempt. `waiting` is by arrival, with its time.
    One that is not answered is sent again as it is; the next one has the next `number`.
    """

    gateway: str
    session: str
    number: int
    finished: list[Finished]
    running: list[Resumed]
    waiting: list[tuple[int, Request]]


class Welcome(msgspec.Struct, frozen=True):
    """The answer to `Hello`: by what and for whom requests are judged. `now_ns` is the core's time."""

    now_ns: int
    config: bytes
    keys: list[Key]
    readiness: Readiness
    logging: list[str] = []


encode: Final = msgspec.msgpack.Encoder().encode
decode_batch: Final = msgspec.msgpack.Decoder(Batch).decode
decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode
decode_hello: Final = msgspec.msgpack.Decoder(Hello).decode
decode_welcome: Final = msgspec.msgpack.Decoder(Welcome).decode
decode_overheard: Final = msgspec.msgpack.Decoder(Overheard).decode


def pack_config(config: Config) -> bytes:
    """A configuration as bytes; it comes from the core actor alone."""
    return msgspec.msgpack.encode(config, enc_hook=str)


def unpack_config(data: bytes) -> Config:
    return msgspec.msgpack.decode(data, type=Config, dec_hook=lambda kind, text: kind(text))


def address_of(target: Target) -> Address:
    return Address(
        target.replica_id,
        target.host,
        target.port,
        target.adapter.name,
        target.served_model,
        target.base_path,
        target.authorization,
        target.tls is not None,
        target.model,
        target.build,
        target.destinations,
    )


@functools.lru_cache(maxsize=4096)
def target_of(address: Address) -> Target:
    """The same `Target` for the same address, so that its kept connections are found again."""
    return Target(
        address.replica_id,
        address.host,
        address.port,
        ADAPTERS[address.adapter],
        address.served_model,
        base_path=address.base_path,
        authorization=address.authorization,
        tls=ssl.create_default_context() if address.tls else None,
        model=address.model,
        build=address.build,
        destinations=address.destinations,
    )


def revoked(key: Key) -> Key:
    """The same key, which counts no more."""
    return msgspec.structs.replace(key, revoked_ns=0)
