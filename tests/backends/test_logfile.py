"""A log of bounded size that never costs more than lines."""

from pathlib import Path

from commonpool.backends.logfile import BoundedLog


def test_lines_are_appended_over_several_lives(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "m-0.log"
    for word in (b"first\n", b"second\n"):
        with BoundedLog(path) as log:
            log.write(word)
    assert path.read_text() == "first\nsecond\n"


def test_its_size_is_bounded_and_the_newest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m-0.log"
    with BoundedLog(path, bytes_max=100) as log:
        for number in range(1000):
            log.write(b"line %03d\n" % number)
        log.write(b"x" * 500)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["m-0.log", "m-0.log.1"]
    assert all(file.stat().st_size <= 100 for file in files)
    assert "line 999\n" in (tmp_path / "m-0.log.1").read_text()


def test_the_size_of_an_earlier_life_counts(tmp_path: Path) -> None:
    path = tmp_path / "m-0.log"
    path.write_bytes(b"x" * 95)
    with BoundedLog(path, bytes_max=100) as log:
        log.write(b"0123456789")
    assert path.read_bytes() == b"0123456789"


def test_the_last_lines_are_at_hand_whole_or_not(tmp_path: Path) -> None:
    with BoundedLog(tmp_path / "m-0.log") as log:
        log.write(b"one\n\ntw")
        log.write(b"o\nthr\xffee")
        assert log.tail(9) == ["one", "two", "thr\ufffdee"]
        assert log.tail(1) == ["thr\ufffdee"]
        log.write(b"y" * 100_000)
        assert len(log.tail(1)[0]) == 1000


def test_a_disk_that_cannot_be_written_costs_lines_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with BoundedLog(tmp_path / "file" / "m-0.log") as log:
        log.write(b"said\n")
        assert log.tail(1) == ["said"]
