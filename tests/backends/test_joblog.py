"""A log is read piece by piece while it is written, across its rotation, and no character is torn."""

from pathlib import Path

import pytest

from commonpool.backends.joblog import read_log
from commonpool.backends.logfile import BoundedLog


def whole(path: Path, after: str = "", bytes_max: int = 7) -> tuple[str, str]:
    """All that is there, read in pieces, and the place behind it."""
    text = ""
    while True:
        part = read_log(path, after, bytes_max)
        text, after = text + part.text, part.after
        if not part.more:
            return text, after


def test_nothing_printed_yet(tmp_path: Path) -> None:
    part = read_log(tmp_path / "log", "")
    assert (part.text, part.after, part.more) == ("", "", False)


def test_pieces_add_up_and_go_on_where_they_ended(tmp_path: Path) -> None:
    with BoundedLog(tmp_path / "log") as log:
        log.write(b"one\ntwo\nthree\n")
        text, after = whole(tmp_path / "log")
        assert text == "one\ntwo\nthree\n"
        assert whole(tmp_path / "log", after) == ("", after)
        log.write(b"four\n")
        assert whole(tmp_path / "log", after)[0] == "four\n"


def test_a_rotation_between_two_pieces_loses_nothing(tmp_path: Path) -> None:
    with BoundedLog(tmp_path / "log", bytes_max=20) as log:
        log.write(b"0123456789")
        _, after = whole(tmp_path / "log")
        log.write(b"abcdefgh")
        log.write(b"next file")
        assert (tmp_path / "log.1").exists()
        text, after = whole(tmp_path / "log", after)
        assert text == "abcdefghnext file"
        assert whole(tmp_path / "log", after)[0] == ""
        assert whole(tmp_path / "log")[0] == "0123456789abcdefghnext file"


def test_a_reader_that_is_far_behind_gets_what_is_kept(tmp_path: Path) -> None:
    with BoundedLog(tmp_path / "log", bytes_max=4) as log:
        log.write(b"old\n")
        _, after = whole(tmp_path / "log")
        (tmp_path / "kept").hardlink_to(tmp_path / "log")  # else its inode may be the next file's
        for line in (b"one\n", b"two\n", b"six\n"):
            log.write(line)
        assert whole(tmp_path / "log", after)[0] == "two\nsix\n"


def test_a_character_is_not_torn(tmp_path: Path) -> None:
    text = "aä€😀" * 5
    (tmp_path / "log").write_bytes(text.encode())
    for bytes_max in range(4, 12):
        assert whole(tmp_path / "log", bytes_max=bytes_max)[0] == text
    (tmp_path / "log").write_bytes("ä".encode()[:1])  # its rest is yet to come
    part = read_log(tmp_path / "log", "")
    assert part.text == ""
    (tmp_path / "log").write_bytes("ä".encode())
    assert read_log(tmp_path / "log", part.after).text == "ä"


def test_bytes_that_are_no_text_are_shown_as_such(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a\xffb\x80\n")
    assert whole(tmp_path / "log")[0] == "a\ufffdb\ufffd\n"


@pytest.mark.parametrize("after", ["x", "1", "1:", ":1", "-1:2", "1:2:3", "1" * 50 + ":0"])
def test_what_is_no_place_is_refused(tmp_path: Path, after: str) -> None:
    with pytest.raises(ValueError, match="is no place in a log"):
        read_log(tmp_path / "log", after)


def test_a_place_behind_the_end_is_the_end(tmp_path: Path) -> None:
    with BoundedLog(tmp_path / "log") as log:
        log.write(b"one\n")
        _, after = whole(tmp_path / "log")
        inode = after.partition(":")[0]
        assert read_log(tmp_path / "log", f"{inode}:{'9' * 20}").after == after
