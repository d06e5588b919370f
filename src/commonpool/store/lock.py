"""The lock on a state folder: two processes with one journal would each charge half of the truth."""

import fcntl
import os
from pathlib import Path

from commonpool.store.contract import StoreError


class FolderLock:
    """Held by one process at a time, until `release` or the end of the process, whatever ends it."""

    def __init__(self, folder: Path) -> None:
        """Takes the lock, or raises StoreError naming the process that holds it."""
        path = folder / "lock"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except (FileExistsError, NotADirectoryError) as error:
            raise StoreError(
                f"The state folder {folder} is a file, or lies below one: name a folder in `state`."
            ) from error
        except OSError as error:
            raise StoreError(
                f"The state folder {folder} cannot be used ({error.strerror}): make it writable, or set `state`."
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, str(os.getpid()).encode(), 0)
        except BlockingIOError as error:
            holder = os.pread(self._fd, 20, 0).decode() or "unknown"
            self.release()
            raise StoreError(
                f"The state folder {folder} is already used by process {holder}: stop it, or name another in `state`."
            ) from error
        except OSError as error:
            self.release()
            raise StoreError(
                f"The state folder {folder} cannot be locked ({error.strerror}): free some disk space, or name another "
                "folder, on a local disk, in `state`."
            ) from error

    def release(self) -> None:
        """Gives the lock back. A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
