"""What is weak in what was seen, and what to do about it. Pure: the same facts give the same findings."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from commonpool.cli.checkup.facts import Facts, File
from commonpool.config.outgoing import is_loopback
from commonpool.config.structs import Address, AttachedEngine, Tls
from commonpool.core.model import NS_PER_S
from commonpool.store.keys import FIRST_START

EXPIRES_SOON_S: Final = 30 * 86_400  # a month to renew a certificate in
DISK_LOW_BYTES: Final = 1024**3
DISK_EMPTY_BYTES: Final = 100 * 1024**2
DISK_LOW_PERCENT: Final = 5
OTHERS: Final = 0o007
GROUP: Final = 0o070
WRITABLE: Final = 0o022
SHOWN: Final = 5


class Finding(msgspec.Struct, frozen=True):
    """One weak setting. `check` names what was looked at; `what` is wrong and what to `do` are sentences.

    `serious`: somebody who should not can read, change or use something as it is.
    """

    check: str
    serious: bool
    what: str
    do: str


def judge(facts: Facts) -> list[Finding]:
    """All findings, the serious ones first."""
    found = [
        *_listeners(facts),
        *_certificates(facts),
        *_engines(facts),
        *_files(facts),
        *_secrets(facts),
        *_keys(facts),
        *_jobs(facts),
        *_store(facts),
        *_machine(facts),
    ]
    return sorted(found, key=lambda finding: not finding.serious)


def _listeners(facts: Facts) -> Iterator[Finding]:
    listen, access = facts.config.listen, facts.config.access
    pairs: tuple[tuple[str, Address, Tls | None], ...] = (
        ("gateway", listen.gateway, listen.gateway_tls),
        ("control", listen.control, listen.control_tls),
    )
    for name, address, files in pairs:
        if files is None and not is_loopback(address.host):
            yield Finding(
                "open_listener",
                serious=True,
                what=f"listen.{name} is {address} without TLS, so keys and what they are used for cross the network as "
                "they are.",
                do=f"Set listen.{name}_tls, or listen on 127.0.0.1 behind a proxy that has TLS, and set access.local: "
                "false (docs/tls.md).",
            )
    if access.local and access.url is not None and not is_loopback(urlsplit(access.url).hostname or ""):
        yield Finding(
            "local_behind_proxy",
            serious=False,
            what=f"access.url is {access.url}, and a program of this machine without a credential is a platform-admin: "
            "should that be a proxy of this machine, so may be all that it passes on.",
            do="Set access.local to false, unless no proxy is in front (docs/tls.md).",
        )
    if not is_loopback(listen.control.host) and access.oidc is None and not access.roles:
        yield Finding(
            "nobody_by_name",
            serious=False,
            what="The control plane is reachable from elsewhere, and access names nobody: only admin keys open it, "
            "which many may hold.",
            do="Set access.oidc, or give accounts their roles under access.roles (docs/authorization.md).",
        )


def _certificates(facts: Facts) -> Iterator[Finding]:
    for each in facts.certificates:
        if each.problem:
            yield Finding("certificate", serious=True, what=each.problem, do="Correct it; the product cannot start so.")
        elif each.ends_s - facts.now_ns / NS_PER_S < EXPIRES_SOON_S:
            days = int((each.ends_s - facts.now_ns / NS_PER_S) // 86_400)
            yield Finding(
                "certificate_expires",
                serious=False,
                what=f"{each.key}.certificate expires in {days} days.",
                do="Renew it in place; a running product takes the new one up within seconds.",
            )


def _engines(facts: Facts) -> Iterator[Finding]:
    for model in facts.config.models.values():
        if not isinstance(model.engine, AttachedEngine):
            continue
        away = [url for url in model.engine.urls if not is_loopback(urlsplit(url).hostname or "")]
        if model.engine.credential is None and model.engine.urls:
            yield Finding(
                "engine_without_credential",
                serious=bool(away),
                what=f"models.{model.name}.engine has no credential, so {_some(away or model.engine.urls)} takes "
                "requests from whoever reaches it, past queue, limits and bill.",
                do="Give the engine a key (vLLM: --api-key) and name its place in credential.",
            )
        plain = [url for url in away if url.startswith("http:")]
        if plain:
            yield Finding(
                "engine_without_tls",
                serious=False,
                what=f"models.{model.name}.engine is reached over plain HTTP at {_some(plain)}, so prompts and its key "
                "cross that network as they are.",
                do="Give it TLS, or see that nobody else is in that network (docs/isolation-levels.md).",
            )


def _files(facts: Facts) -> Iterator[Finding]:
    folder = next((file for file in facts.state if file.path == facts.config.state), None)
    closed = folder is not None and not folder.mode & (OTHERS | GROUP)
    if folder is not None and not closed:
        yield Finding(
            "state_open",
            serious=True,
            what=f"The state folder {folder.shown} is open to other users of this machine: the store has digests of "
            "keys, and what everybody used.",
            do=f"Run `chmod 700 {folder.path}`.",
        )
    below = [file for file in facts.state if file.path != facts.config.state and file.mode & (OTHERS | GROUP)]
    if below:
        yield Finding(
            "store_open",
            serious=not closed,
            what=f"Others may read or write {_shown(below)}"
            f"{', which only the folder above keeps them from' if closed else ''}.",
            do=f"Run `chmod -R go= {facts.config.state}`.",
        )
    changeable = [file for file in facts.settings if file.mode & WRITABLE]
    if changeable:
        yield Finding(
            "settings_writable",
            serious=True,
            what=f"Others may write {_shown(changeable)}, and so decide who may do what at the next start.",
            do="Take the right to write from group and others: `chmod go-w FILE`.",
        )


def _secrets(facts: Facts) -> Iterator[Finding]:
    for bits, whose, serious in ((OTHERS, "everybody on this machine", True), (GROUP, "its group", False)):
        read = [file for file in facts.secrets if file.mode & bits and (bits == OTHERS or not file.mode & OTHERS)]
        if read:
            yield Finding(
                "secret_open",
                serious=serious,
                what=f"A secret is open to {whose}: {_shown(read)}.",
                do="Run `chmod 600 FILE`, and replace the secret if somebody may have read it.",
            )
    if facts.missing:
        yield Finding(
            "secret_missing",
            serious=True,
            what=f"{'; '.join(facts.missing)}.",
            do="Put the secret there, or correct the path.",
        )
    master = facts.config.secrets
    if master.master_key is not None and Path(master.master_key.removeprefix("file:")).is_relative_to(
        facts.config.state
    ):
        yield Finding(
            "master_key_beside",
            serious=False,
            what=f"The master key lies in the state folder, {facts.config.state}, beside what it encrypts: whoever has "
            "the one, as in a backup, has the other.",
            do="Keep it elsewhere, and name that place in secrets.master_key.",
        )
    if master.previous_master_key is not None:
        yield Finding(
            "old_master_key",
            serious=False,
            what="secrets.previous_master_key is set, so the master key before this one still opens something.",
            do="Run `commonpool secrets rotate`, then take it out of the configuration and destroy it.",
        )
    if master.master_key is None:
        yield Finding(
            "no_master_key",
            serious=False,
            what="There is no master key, so nothing can be encrypted at rest, and no tenant can keep its prompts.",
            do="Set secrets.master_key (docs/data-boundaries.md), unless no tenant wants that.",
        )


def _keys(facts: Facts) -> Iterator[Finding]:
    forever = [key for key in facts.keys or () if key.expires_ns is None]
    for scope, serious in (("admin", True), ("data", False)):
        named = [key.key_id for key in forever if key.scope == scope]
        if named:
            yield Finding(
                "key_without_end",
                serious=serious,
                what=f"{len(named)} {scope} key(s) never expire: {_some(named)}.",
                do="Make ones with `commonpool keys create --expires`, hand them over, and revoke these.",
            )
    first = [key.key_id for key in facts.keys or () if key.note == FIRST_START]
    if first:
        yield Finding(
            "first_keys",
            serious=False,
            what=f"{len(first)} key(s) of the first start are in use: {_some(first)}. They were printed then, where a "
            "log may have kept them.",
            do="Rotate them: `commonpool keys rotate ID`.",
        )


def _jobs(facts: Facts) -> Iterator[Finding]:
    config = facts.config
    if config.job_submitters == "tenants" and not config.job_users:
        yield Finding(
            "jobs_as_product",
            serious=True,
            what="Tenants may submit jobs, and these run as the product's user, which reads and changes all it keeps.",
            do="Give each tenant a user under jobs.users, or set jobs.submitters to operators (docs/jobs.md).",
        )
    if config.job_submitters == "tenants" and config.access.local:
        yield Finding(
            "local_administrators",
            serious=True,
            what="Tenants may submit jobs, and on this machine a program without a credential is a platform-admin.",
            do="Set access.local to false, once an account or an admin key opens the control plane.",
        )
    if facts.users:
        yield Finding(
            "job_users_missing",
            serious=False,
            what=f"jobs.users names users that this machine does not have: {_some(facts.users)}.",
            do="Make them, as with `useradd --system NAME`, on every machine that runs jobs.",
        )


def _store(facts: Facts) -> Iterator[Finding]:
    if facts.migrations:
        yield Finding(
            "schema_old",
            serious=False,
            what=f"The store lacks {facts.migrations} migration(s) of this version, so an older one used it last.",
            do="Back the state folder up, then start the product: it brings the store up to date.",
        )


def _machine(facts: Facts) -> Iterator[Finding]:
    running, disk = facts.running, facts.disk
    if running is not None and running.core_limit != "0":
        yield Finding(
            "core_dumps",
            serious=False,
            what=f"The product's process {running.pid} may write core dumps ({running.core_limit} bytes), which hold "
            "keys and prompts.",
            do="Start it with `commonpool up`, which forbids them, or under `ulimit -c 0`.",
        )
    if running is not None and running.uid == 0 and not facts.config.job_users:
        yield Finding(
            "runs_as_root",
            serious=False,
            what="The product runs as root, which only jobs.users needs: a fault in it is one of the whole machine.",
            do="Run it as a user of its own.",
        )
    if facts.synchronised is False:
        yield Finding(
            "clock",
            serious=False,
            what="The kernel says that nothing keeps this machine's clock at the time, which keys and certificates "
            "expire by, and bills are made by.",
            do="Run chrony, systemd-timesyncd or another time service.",
        )
    if disk is not None and (
        disk.free_bytes < DISK_LOW_BYTES or disk.free_bytes * 100 < disk.total_bytes * DISK_LOW_PERCENT
    ):
        yield Finding(
            "disk_low",
            serious=disk.free_bytes < DISK_EMPTY_BYTES,
            what=f"{disk.free_bytes / 1024**3:.1f} GiB of {disk.total_bytes / 1024**3:.1f} GiB are free for "
            f"{facts.config.state}; without space no request is taken in.",
            do="Make room, or move the state folder to a larger disk.",
        )


def _some(names: Sequence[str]) -> str:
    every = list(names)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more


def _shown(files: list[File]) -> str:
    return _some([file.shown for file in files])
