"""Engines that run elsewhere: nothing is started here, only an address and a credential are made ready."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from commonpool.backends.base import Adopted, BackendError
from commonpool.config.secrets import SecretMissingError, secret
from commonpool.config.structs import AttachedEngine, Model
from commonpool.core.model import Replica
from commonpool.engines.base import Target
from commonpool.engines.registry import ADAPTERS

PORTS = {"http": 80, "https": 443}


class AttachedBackend:
    """`environment` is where `env:NAME` credentials are looked up; `destinations` are those of `config.outgoing`."""

    def __init__(
        self, environment: Mapping[str, str] = os.environ, destinations: tuple[str, ...] | None = None
    ) -> None:
        self._environment = environment
        self._destinations = destinations

    def check(self, model: Model) -> None:
        for index in range(len(_engine(model).urls)):
            self._target(model, index, "")

    async def start(self, model: Model, index: int, replica: Replica) -> "AttachedHandle":
        return AttachedHandle(self._target(model, index, replica.id))

    async def adopt(self) -> tuple[Adopted, ...]:
        return ()

    def _target(self, model: Model, index: int, replica_id: str) -> Target:
        engine = _engine(model)
        url = engine.urls[index]
        parts = urlsplit(url)
        try:
            port = parts.port or PORTS[parts.scheme]
        except (KeyError, ValueError):
            port = 0
        if not parts.hostname or not port:
            raise BackendError(
                f"models.{model.name}.engine.urls has {url!r}; write it as http://HOST:PORT or https://…"
            )
        secret = self._secret(model.name, engine.credential)
        return Target(
            replica_id,
            parts.hostname,
            port,
            ADAPTERS[engine.adapter],
            engine.served_model or model.name,
            base_path=parts.path.rstrip("/").removesuffix("/v1"),
            authorization=None if secret is None else b"Bearer " + secret,
            tls=ssl.create_default_context() if parts.scheme == "https" else None,
            destinations=self._destinations,
        )

    def _secret(self, model: str, credential: str | None) -> bytes | None:
        if credential is None:
            return None
        try:
            return secret(f"models.{model}.engine.credential", credential, self._environment).encode()
        except SecretMissingError as error:
            raise BackendError(str(error)) from None


class AttachedHandle:
    """An engine that somebody else runs: it cannot end for us, only stop answering."""

    pid: int | None = None

    def __init__(self, target: Target) -> None:
        self.target = target

    async def wait(self) -> str:
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def stop(self, grace_ns: int) -> None:
        """Nothing is ours to stop."""


def _engine(model: Model) -> AttachedEngine:
    if not isinstance(model.engine, AttachedEngine):
        raise BackendError(f"Model {model.name} has no engine to attach to.")
    return model.engine
