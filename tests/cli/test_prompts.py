"""Given a tenant's prompt log, when it is switched, read and deleted by commands, then they say how it stands."""

import json
from typing import Any

import pytest

from commonpool.access.callers import by_admin_key
from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.store.prompts import PromptHead, Spoken
from tests.api.fakes import NOW, FakeOperations
from tests.cli.serving import serving


def document(output: str) -> Any:
    """The one JSON document; before it there may be a line of the product's own log, which is in this process."""
    return json.loads(output[output.index("{") :])


def test_life_of_a_log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMONPOOL_ADMIN_TOKEN", "cp_ours")
    monkeypatch.setenv("COLUMNS", "200")
    product = FakeOperations()
    product.callers = {b"Bearer cp_ours": by_admin_key("k1", "tenant-admin", "support")}
    with serving(product) as url:

        def said(*arguments: str, code: ExitCode = ExitCode.OK) -> str:
            assert run(["prompts", *arguments, "--control", url]) == code
            captured = capsys.readouterr()
            return captured.out if code == ExitCode.OK else captured.err

        assert said("on", "support", "--keep", "7d").endswith(
            "the prompt log of tenant support is on since 2027-01-15 08:00:00Z, by key:k1; entries are kept for 7d; "
            "0 bytes are kept\n"
        )
        raw = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nanswer"
        head = PromptHead("support", NOW, "r-1", "helpdesk", "echo", "chat", 0)
        product.fake_prompts.hear(Spoken(head, b"question", raw, cut=True, gone=False))
        listed = said("list", "support")
        assert "r-1 " in listed
        assert "question" not in listed
        assert said("show", "support", "r-1").endswith("question\n\nanswer\n")
        assert document(said("show", "support", "r-1", "--json"))["cut"] is True
        (entry,) = document(said("list", "support", "--json"))["entries"]
        assert entry["request_id"] == "r-1"
        assert "name one request, or delete all with --all" in said("delete", "support", code=ExitCode.USAGE)
        assert said("delete", "support", "r-1").endswith("1 deleted\n")
        assert said("delete", "support", "--all").endswith("0 deleted\n")
        assert said("off", "support").endswith("the prompt log of tenant support is off; 0 bytes are kept\n")
        assert "there is no entry of request 'r-1'" in said("show", "support", "r-1", code=ExitCode.FAILED)
        assert "--keep: " in said("on", "support", "--keep", "soon", code=ExitCode.USAGE)


def test_a_rotation_says_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    product = FakeOperations()
    with serving(product) as url:
        assert run(["secrets", "rotate", "--control", url]) == ExitCode.OK
        assert capsys.readouterr().out == "no data key had to be wrapped anew: secrets.master_key wraps all there are\n"
        assert run(["secrets", "rotate", "--json", "--control", url]) == ExitCode.OK
        assert document(capsys.readouterr().out) == {"count": 0}
