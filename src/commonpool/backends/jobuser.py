"""Users of the operating system that the jobs of a tenant run as, each with nothing of the product's and of others'."""

import os
import pwd

import msgspec

from commonpool.backends.base import BackendError


class User(msgspec.Struct, frozen=True):
    """A user of this machine, by its entry in the user database."""

    name: str
    uid: int
    gid: int
    home: str


def find(name: str) -> User:
    """The user of this name. Raises BackendError where there is none that a tenant's jobs may run as."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise BackendError(
            f"jobs.users names {name!r}, and this machine has no such user; make it, as with `useradd --system {name}`."
        ) from None
    if os.geteuid() != 0:
        raise BackendError(
            f"jobs.users has jobs run as {name!r}, which only root may do, and the product runs as user "
            f"{os.geteuid()}; run it as root, or leave jobs.users out."
        )
    if found.pw_uid == 0:
        raise BackendError(f"jobs.users names {name!r}, which is root, and may do anything; name a user of its own.")
    return User(name, found.pw_uid, found.pw_gid, found.pw_dir)


def environment(user: User) -> dict[str, str]:
    """What says who the user is, in place of what says it of the product's."""
    return {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}


def become(user: User) -> None:
    """Be this user, with its groups, for good. Raises OSError."""
    os.initgroups(user.name, user.gid)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
