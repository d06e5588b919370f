"""The response cache: what a tenant was answered is its answer again when it asks the same. Off for whoever does not
want it.

Kept is what an engine is expected to answer alike each time (`repeats`), whole, and served by the model that was asked,
in its present build. The same is asked where all is the same, byte for byte: tenant, endpoint, model and its build, and
every field of the body that an engine would get. A tenant's answers are in a table of its own; nothing of a question is
kept but its digest, and nothing is written anywhere.

Of a tenant's answers the oldest gives way. Where all together are too many, the oldest of whoever keeps the most does.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from commonpool.config.structs import Config
from commonpool.core.model import Request, Usage
from commonpool.engines.base import Target
from commonpool.engines.heard import answer_of
from commonpool.gateway.overheard import Heard
from commonpool.gateway.sse import DONE
from commonpool.gateway.wire import Ask

ANSWER_BYTES_MAX: Final = 1024 * 1024
TENANT_BYTES_MAX: Final = 16 * 1024 * 1024
BYTES_MAX: Final = 256 * 1024 * 1024
SEED_MAX: Final = 2**32 - 2  # llama.cpp draws a seed of its own for -1, also where it is unsigned
_BESIDE: Final = 512  # bytes that an answer takes beside its own

_number = msgspec.json.Decoder(float).decode
_whole = msgspec.json.Decoder(int).decode


class KeptReply(msgspec.Struct, frozen=True):
    """An answer that is kept: its body, chunks of a stream joined, and what it counts for when it is given again."""

    body: bytes
    usage: Usage
    kept_at_ns: int

    @property
    def size(self) -> int:
        return len(self.body) + _BESIDE


class Question(msgspec.Struct, frozen=True):
    """What is asked, as far as answers are kept by it."""

    tenant: str
    model: str
    build: str
    stream: bool
    digest: bytes


class Recall:
    """What is kept of the answers of those tenants that have a response cache. `now` is monotonic nanoseconds."""

    def __init__(
        self,
        config: Config,
        *,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        tenant_bytes_max: int = TENANT_BYTES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self.answer_bytes_max = answer_bytes_max
        self._tenant_bytes_max = tenant_bytes_max
        self._bytes_max = bytes_max
        # By tenant and digest, each with its model, by age.
        self._kept: dict[str, dict[bytes, tuple[str, KeptReply]]] = {}
        self._sizes: dict[str, int] = {}
        self._builds: dict[str, str] = {}
        self.configure(config)

    @property
    def used(self) -> bool:
        """Whether there is anybody who keeps answers."""
        return bool(self._within_ns)

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return sum(self._sizes.values())

    def configure(self, config: Config) -> None:
        """From now on these tenants keep answers, for so long; those of models that are others now are dropped."""
        self._within_ns = config.response_cache_ns
        builds = {name: deployment.engine for name, deployment in config.policy.deployments.items()}
        changed = {name for name, build in self._builds.items() if builds.get(name) != build}
        self._builds = builds
        for tenant, kept in list(self._kept.items()):
            stays = tenant in self._within_ns
            for digest in [digest for digest, (model, _) in kept.items() if not stays or model in changed]:
                self._drop(tenant, digest)

    def question(self, request: Request, ask: Ask) -> Question | None:
        """What a request asks; None where its answer is neither given nor kept."""
        if request.tenant not in self._within_ns or not repeats(ask):
            return None
        build = self._builds.get(request.model, "")
        digest = hashlib.sha256()
        for part in _parts(request, ask, build):
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return Question(request.tenant, request.model, build, ask.stream, digest.digest())

    def find(self, question: Question, now: int) -> KeptReply | None:
        """The answer that is kept."""
        found = self._kept.get(question.tenant, {}).get(question.digest)
        if found is None or found[1].kept_at_ns + self._within_ns.get(question.tenant, 0) <= now:
            return None
        return found[1]

    def keep(self, question: Question, heard: Heard, served: tuple[Target, Usage] | None, now: int) -> None:
        """An answer was given: by whom, and what it counted for, where it was a whole one (`served`)."""
        if served is None or heard.cut or heard.gone or question.tenant not in self._within_ns:
            return
        target, usage = served
        builds = {question.build, self._builds.get(question.model)}
        if target.model != question.model or builds != {target.build.partition(" ")[0]}:  # attached: with its URL
            return
        status, body = answer_of(heard.raw)
        if status != 200 or (question.stream and not body.endswith(DONE)):  # noqa: PLR2004 - OK
            return
        usage = Usage(usage.tokens_in, usage.tokens_in, usage.tokens_out, usage.source)
        reply = KeptReply(body, usage, now)
        if reply.size > min(self._tenant_bytes_max, self._bytes_max):
            return
        tenant = question.tenant
        self._drop(tenant, question.digest)
        kept = self._kept.setdefault(tenant, {})
        kept[question.digest] = question.model, reply
        self._sizes[tenant] = self._sizes.get(tenant, 0) + reply.size
        while self._sizes[tenant] > self._tenant_bytes_max:
            self._drop_oldest(tenant)
        while self.size > self._bytes_max:
            self._drop_oldest(max(self._sizes, key=self._sizes.__getitem__))

    def sweep(self, now: int) -> None:
        """Drop what has been kept for long enough."""
        for tenant, within_ns in self._within_ns.items():
            for digest, (_, reply) in list(self._kept.get(tenant, {}).items()):
                if reply.kept_at_ns + within_ns > now:
                    break
                self._drop(tenant, digest)

    def _drop_oldest(self, tenant: str) -> None:
        self._drop(tenant, next(iter(self._kept[tenant])))

    def _drop(self, tenant: str, digest: bytes) -> None:
        kept = self._kept.get(tenant, {})
        found = kept.pop(digest, None)
        if found is not None:
            self._sizes[tenant] -= found[1].size
            if not kept:
                del self._kept[tenant], self._sizes[tenant]


def repeats(ask: Ask) -> bool:
    """Whether it asks for the same answer each time: an embedding, no temperature, or a seed of its own."""
    if ask.endpoint == "embeddings":
        return True
    fields = ask.fields
    temperature, seed = fields.get("temperature"), fields.get("seed")
    try:
        if temperature is not None and _number(temperature) == 0:
            return True
        return seed is not None and 0 <= _whole(seed) <= SEED_MAX
    except msgspec.DecodeError:
        return False


def _parts(request: Request, ask: Ask, build: str) -> Iterator[bytes]:
    for text in (request.tenant, ask.endpoint, request.model, build):
        yield text.encode()
    yield b"usage" if ask.include_usage else b""  # its engine is asked for it in any case
    for name, raw in sorted(ask.fields.items()):
        if name != "model":
            yield name.encode()
            yield bytes(raw)
