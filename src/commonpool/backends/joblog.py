"""Reading a bounded log that may still be written, piece by piece (`backends.logfile`)."""

import codecs
import contextlib
import os
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

PART_BYTES_MAX: Final = 256 * 1024
_PLACE_CHARS_MAX: Final = 40


class LogPart(msgspec.Struct, frozen=True):
    """A piece of a log. `after` asks for the next one; `more` says that there is some already."""

    text: str
    after: str
    more: bool


def read_log(path: Path, after: str, bytes_max: int = PART_BYTES_MAX) -> LogPart:
    """The piece behind the place `after`; of what was dropped meanwhile nothing is said. ValueError for no place.

    A place is the file's inode and an offset: the file keeps its inode when it is renamed to `.1`. A reader that is two
    files behind may miss some of what is kept, since an inode is used again.
    """
    inode, offset = _place(after)
    with contextlib.ExitStack() as opened:
        files = _open(path, opened)
        inodes = list(files)
        at = inodes.index(inode) if inode in files else 0
        offset = offset if inode in files else 0
        while at < len(inodes):
            last = at == len(inodes) - 1
            file = files[inodes[at]]
            offset = min(offset, os.fstat(file.fileno()).st_size)  # a place that is none may be beyond all numbers
            file.seek(offset)
            data = file.read(bytes_max + 1)
            if data or last:
                text, used = _decode(data[:bytes_max], final=len(data) <= bytes_max and not last)
                more = len(data) > bytes_max or not last
                return LogPart(text, f"{inodes[at]}:{offset + used}", more)
            at, offset = at + 1, 0
    return LogPart("", after, more=False)


def _open(path: Path, opened: contextlib.ExitStack) -> dict[int, BinaryIO]:
    """The files of a log by inode, the older first. One that is renamed meanwhile is found once."""
    found: dict[int, BinaryIO] = {}
    for name in (path.name, f"{path.name}.1"):
        with contextlib.suppress(FileNotFoundError):
            file = opened.enter_context(path.with_name(name).open("rb"))
            found = {os.fstat(file.fileno()).st_ino: file} | found
    return found


def _place(after: str) -> tuple[int, int]:
    inode, _, offset = (after or "0:0").partition(":")
    if not (inode.isdecimal() and offset.isdecimal() and len(after) <= _PLACE_CHARS_MAX):
        raise ValueError(f"{after!r} is no place in a log; give the `after` of an answer, or none for its beginning.")
    return int(inode), int(offset)


def _decode(data: bytes, *, final: bool) -> tuple[str, int]:
    """The text, and how many bytes it is made of: where more may follow, without a character that is not whole yet."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    text = decoder.decode(data, final)
    return text, len(data) - len(decoder.getstate()[0])
