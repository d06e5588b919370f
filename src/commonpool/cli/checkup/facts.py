"""What the doctor sees: files and their rights, the store, certificates, the product's process and the machine's state.

What cannot be looked at is said so (`Facts.unseen`), and nothing is concluded from it.
"""

import ctypes
import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from commonpool.config.structs import AttachedEngine, Config, Tls
from commonpool.store import looking
from commonpool.store.contract import StoreError
from commonpool.store.looking import SeenKey
from commonpool.store.sqlite import FILE

_STA_UNSYNC: Final = 0x40
_JOURNALS_MAX: Final = 1000  # segments that are looked at: those that a full disk would leave


class File(msgspec.Struct, frozen=True):
    """A file or folder as it is: its rights are the lowest nine bits."""

    path: Path
    mode: int

    @property
    def shown(self) -> str:
        return f"{self.path} (mode {self.mode:04o})"


class Certificate(msgspec.Struct, frozen=True):
    """A listener's certificate: when it ends (seconds since the epoch), or why it is of no use."""

    key: str
    ends_s: float = 0.0
    problem: str = ""


class Running(msgspec.Struct, frozen=True):
    """The product's process. `core_limit` is how large a core dump of it may be ("0", "unlimited")."""

    pid: int
    uid: int
    core_limit: str


class Disk(msgspec.Struct, frozen=True):
    """The disk that the state folder is on."""

    free_bytes: int
    total_bytes: int


class Facts(msgspec.Struct, frozen=True):
    """All that was seen. None, and no entry, is what is not there, or was not to be seen.

    `state` are the folder itself and the store's files in it; `secrets` the files that the configuration says hold
    secrets, `missing` those of them that are not there; `settings` the files of the configuration and its policies.
    """

    config: Config
    now_ns: int
    state: Sequence[File] = ()
    secrets: Sequence[File] = ()
    missing: Sequence[str] = ()
    settings: Sequence[File] = ()
    certificates: Sequence[Certificate] = ()
    users: Sequence[str] = ()  # of jobs.users, those that are not on this machine
    keys: Sequence[SeenKey] | None = None
    migrations: int | None = None
    running: Running | None = None
    disk: Disk | None = None
    synchronised: bool | None = None  # whether the kernel takes its clock to be that of others
    unseen: Sequence[str] = ()


def gather(
    config: Config, settings: Iterable[Path], now_ns: int, keys: Sequence[SeenKey] | str, proc: Path = Path("/proc")
) -> Facts:
    """Look. `keys` are those of a running product, or why they are not known: a SQLite store is looked into itself."""
    unseen: list[str] = []
    migrations, found = None, None if isinstance(keys, str) else keys
    if config.store_url is None and (config.state / FILE).exists():
        try:
            migrations, found = looking.pending(config.state), looking.live_keys(config.state, now_ns)
        except StoreError as error:
            unseen.append(str(error))
    elif isinstance(keys, str):
        unseen.append(keys)
    here, missing = _secrets(config)
    policies = [] if config.access.policies is None else sorted(config.access.policies.glob("*.cedar"))
    pid = looking.holder(config.state, proc)
    return Facts(
        config=config,
        now_ns=now_ns,
        state=tuple(_state(config.state, unseen)),
        secrets=here,
        missing=missing,
        settings=tuple(_files([*settings, *policies], unseen)),
        certificates=tuple(_certificates(config, now_ns / 1e9)),
        users=tuple(user for user in config.job_users.values() if not _is_user(user)),
        keys=found,
        migrations=migrations,
        running=None if pid is None else _process(pid, proc, unseen),
        disk=_disk(config.state),
        synchronised=_synchronised(),
        unseen=tuple(unseen),
    )


def _files(paths: Iterable[Path], unseen: list[str]) -> Iterator[File]:
    for path in paths:
        try:
            yield File(path, stat.S_IMODE(path.stat().st_mode))
        except FileNotFoundError:
            continue
        except OSError as error:
            unseen.append(f"{path} cannot be looked at: {error.strerror}.")


def _state(folder: Path, unseen: list[str]) -> Iterator[File]:
    store = [folder / f"{FILE}{suffix}" for suffix in ("", "-wal", "-shm")]
    try:
        journal = sorted((folder / "journal").glob("*"))[:_JOURNALS_MAX]
    except OSError:
        journal = []
    return _files([folder, folder / "journal", folder / "jobs", *store, *journal], unseen)


def _secrets(config: Config) -> tuple[tuple[File, ...], tuple[str, ...]]:
    """The files that hold secrets, and those that are not there."""
    places = {
        "store.url": config.store_url,
        "secrets.master_key": config.secrets.master_key,
        "secrets.previous_master_key": config.secrets.previous_master_key,
        "access.oidc.client_secret": None if config.access.oidc is None else config.access.oidc.client_secret,
        **_of_channels(config),
    }
    for model in config.models.values():
        if isinstance(model.engine, AttachedEngine):
            places[f"models.{model.name}.engine.credential"] = model.engine.credential
    named = {key: Path(place.removeprefix("file:")) for key, place in places.items() if place and place[:5] == "file:"}
    named |= {f"{key}.key": files.key for key, files in _listeners(config)}
    unseen: list[str] = []
    missing = [f"{key} names {path}, which is not there" for key, path in named.items() if not path.exists()]
    return tuple(_files(dict.fromkeys(named.values()), unseen)), tuple(missing)


def _of_channels(config: Config) -> dict[str, str | None]:
    """What the channels of alerts keep secret, by key."""
    found: dict[str, str | None] = {}
    for name, channel in config.alerts.channels.items():
        at = f"alerts.channels.{name}"
        found |= {f"{at}.url": channel.url, f"{at}.secret": channel.secret}
        if channel.mail is not None:
            found[f"{at}.password"] = channel.mail.password
    return found


def _listeners(config: Config) -> list[tuple[str, Tls]]:
    pairs = (("listen.gateway_tls", config.listen.gateway_tls), ("listen.control_tls", config.listen.control_tls))
    return [(key, files) for key, files in pairs if files is not None]


def _certificates(config: Config, now_s: float) -> Iterator[Certificate]:
    configured = _listeners(config)
    if not configured:
        return
    from commonpool.access import tls  # noqa: PLC0415 - cryptography is slow to import

    for key, files in configured:
        try:
            tls.load(key, files, now_s)
            yield Certificate(key, tls.expires(key, files, now_s))
        except tls.TlsError as error:
            yield Certificate(key, problem=str(error))


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _process(pid: int, proc: Path, unseen: list[str]) -> Running | None:
    try:
        limits = (proc / str(pid) / "limits").read_text().splitlines()
        status = (proc / str(pid) / "status").read_text().splitlines()
    except OSError as error:
        unseen.append(f"The product's process {pid} cannot be looked at: {error.strerror}.")
        return None
    core = next(line.split()[4] for line in limits if line.startswith("Max core file size"))
    uid = next(int(line.split()[2]) for line in status if line.startswith("Uid:"))
    return Running(pid, uid, core)


def _disk(folder: Path) -> Disk | None:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return Disk(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def _synchronised() -> bool | None:
    """What the kernel says (adjtimex(2)): something keeps its clock at the time, or has not for a while."""
    asked = (ctypes.c_long * 64)()  # a timex is smaller; all zero it asks, and sets nothing
    if ctypes.CDLL(None).adjtimex(asked) < 0:
        return None
    return not _status_of(asked) & _STA_UNSYNC


def _status_of(asked: "ctypes.Array[ctypes.c_long]") -> int:
    """Its field `status`: an int behind modes (int, padded), offset, freq, maxerror and esterror (long each)."""
    return ctypes.c_int.from_buffer(asked, 5 * ctypes.sizeof(ctypes.c_long)).value
