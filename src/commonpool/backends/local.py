"""Replicas as child processes of this one, speaking the protocol of `engines.child`.

The operating system ends a child when the thread that started it ends, so a backend belongs on the main thread's loop.
"""

import asyncio
import contextlib
import os
import re
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from commonpool.backends.base import Adopted, BackendError
from commonpool.backends.logfile import BoundedLog
from commonpool.config.structs import EmbeddedEngine, Model
from commonpool.core.model import NS_PER_S, Replica
from commonpool.engines import embedded, files
from commonpool.engines.base import Target
from commonpool.engines.child import Report
from commonpool.engines.registry import EMBEDDED

EMBEDDED_PROGRAM: Final = (sys.executable, "-m", "commonpool.engines.embedded")
START_NS: Final = 120 * NS_PER_S  # loading a model from a cold disk
SHOWN_LINES: Final = 3
PIPES_S: Final = 1.0  # the last of a log; something that a child started may hold its pipes open for ever

# A child gets what a program needs to run and to find its libraries and devices, and none of its parent's secrets.
ENVIRONMENT: Final = frozenset({"PATH", "HOME", "LANG", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"})
ENVIRONMENT_PREFIXES: Final = ("LC_", "OPENBLAS_", "OMP_", "GGML_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_")


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of `environment` that a child may see."""
    return {
        name: value
        for name, value in environment.items()
        if name in ENVIRONMENT or name.startswith(ENVIRONMENT_PREFIXES)
    }


def cuda_environment(node: str, devices: Sequence[str]) -> dict[str, str]:
    """What lets a process on `node` see those of these devices that are there, and no others.

    Nothing where no devices are known. A MIG slice is named so that CUDA finds no device, rather than the wrong one:
    CUDA calls it by a UUID.
    """
    if not devices:
        return {}
    here = f"{node}/"
    visible = ",".join(device.removeprefix(here) for device in devices if device.startswith(here))
    # The order of the indexes is the bus's, which CUDA's own default is not.
    return {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


class LocalBackend:
    """Starts `program` for each replica, listening on `host`, with its log below `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        program: Sequence[str] = EMBEDDED_PROGRAM,
        start_timeout_ns: int = START_NS,
        host: str = "127.0.0.1",
    ) -> None:
        self._folder = folder
        self._program = tuple(program)
        self._start_timeout_ns = start_timeout_ns
        self._host = host

    def check(self, model: Model) -> None:
        _file(model)

    async def adopt(self) -> tuple[Adopted, ...]:
        return ()  # a child ends with its parent

    async def start(self, model: Model, index: int, replica: Replica) -> "LocalHandle":
        engine = _engine(model)
        replica_id = replica.id
        spec = embedded.Spec(
            file=str(_file(model)),
            alias=model.name,
            slots=model.slots,
            context_tokens=model.context_tokens,
            threads=engine.threads,
            api_key=secrets.token_urlsafe(32),
            host=self._host,
        )
        name = re.sub(r"[^\w.-]", "_", model.name)
        log = BoundedLog(self._folder / f"{name}-{index}.log")
        log.write(f"--- {replica_id}\n".encode())
        try:
            child = await self._spawn(log, replica)
        except BaseException:
            log.close()
            raise
        try:
            report = await child.introduce(spec, self._start_timeout_ns)
        except BaseException:
            await child.stop(0)
            raise
        child.target = Target(
            replica_id,
            report.host,
            report.port,
            EMBEDDED,
            model.name,
            authorization=b"Bearer " + spec.api_key.encode(),
        )
        return child

    async def _spawn(self, log: BoundedLog, replica: Replica) -> "LocalHandle":
        environment = child_environment(os.environ) | cuda_environment(replica.node, replica.devices)
        spawning = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *self._program,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the parent, which drains first
            )
        )
        try:
            return LocalHandle(await asyncio.shield(spawning), log, replica.id)
        except asyncio.CancelledError:  # half a child cannot be ended, a whole one can
            await LocalHandle(await spawning, log, replica.id).stop(0)
            raise
        except OSError as error:
            reason = error.strerror or error
            raise BackendError(f"The engine of replica {replica.id} cannot be started: {reason}.") from error


class LocalHandle:
    """A child process and its log."""

    target: Target

    def __init__(self, process: asyncio.subprocess.Process, log: BoundedLog, replica_id: str) -> None:
        self._process = process
        self._log = log
        self._replica_id = replica_id
        assert process.stderr is not None  # noqa: S101 - all three are pipes
        self._pumps = [asyncio.create_task(self._keep_log(process.stderr))]
        self._ended = asyncio.create_task(self._end())

    @property
    def pid(self) -> int | None:
        return self._process.pid

    async def introduce(self, spec: embedded.Spec, timeout_ns: int) -> Report:
        """Tell the child what to serve, and hear where it listens. Raises BackendError."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # noqa: S101 - all three are pipes
        assert stdout is not None  # noqa: S101
        try:
            async with asyncio.timeout(timeout_ns / NS_PER_S):
                with contextlib.suppress(ConnectionError):
                    stdin.write(msgspec.json.encode(spec) + b"\n")
                    await stdin.drain()
                line = await stdout.readline()
                if not line:
                    raise BackendError(await self.wait())
                report = msgspec.json.decode(line, type=Report)
                if report.error:
                    await asyncio.shield(self._ended)  # its last lines are in the log then
        except TimeoutError:
            raise self._failure(f"did not listen within {timeout_ns / NS_PER_S:g} s") from None
        except msgspec.DecodeError:
            raise self._failure(f"printed {line[:80].decode(errors='replace').strip()!r}, not its address") from None
        except ValueError:
            raise self._failure("printed an endless line, not its address") from None
        finally:
            self._pumps.append(asyncio.create_task(self._keep_log(stdout)))
        if report.error:
            raise self._failure(f"could not start: {report.error}")
        if not report.port:
            raise self._failure("reported no address")
        return report

    async def wait(self) -> str:
        status = await asyncio.shield(self._ended)
        if status >= 0:
            return str(self._failure(f"exited with status {status}"))
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return str(self._failure(f"was ended by {name}"))

    async def stop(self, grace_ns: int) -> None:
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()
        try:
            async with asyncio.timeout(grace_ns / NS_PER_S):
                await asyncio.shield(self._ended)
        except TimeoutError:
            self._kill()
            await asyncio.shield(self._ended)

    def _kill(self) -> None:
        """End it and whatever it started; only while it is not yet collected, so that its number is its own."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _end(self) -> int:
        """Collect it, with the last of its log."""
        status = await self._process.wait()
        await asyncio.wait(self._pumps, timeout=PIPES_S)
        for pump in self._pumps:
            pump.cancel()
        self._log.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return status

    async def _keep_log(self, pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(65536):
            self._log.write(data)

    def _failure(self, what: str) -> BackendError:
        tail = self._log.tail(SHOWN_LINES)
        last = f" Its last lines: {' | '.join(tail)}" if tail else ""
        return BackendError(f"The engine of replica {self._replica_id} {what}; see {self._log.path}.{last}")


def _engine(model: Model) -> EmbeddedEngine:
    if not isinstance(model.engine, EmbeddedEngine):
        raise BackendError(f"Model {model.name} has no engine that runs on this machine.")
    return model.engine


def _file(model: Model) -> Path:
    try:
        return files.resolve(_engine(model).file, model.name)
    except files.EngineFileError as error:
        raise BackendError(str(error)) from None
