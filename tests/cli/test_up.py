"""Given a product that started, then a newcomer reads what to do; given one that cannot, one sentence says why."""

import json
import shlex
from pathlib import Path

import msgspec
import pytest

from commonpool.cli import run
from commonpool.cli.exits import ExitCode
from commonpool.cli.up import Ready, ShownKey, welcome
from tests.api.fakes import CONFIG

READY = Ready(
    gateway="http://127.0.0.1:8080",
    control="http://127.0.0.1:8081",
    models=("smollm2", "other"),
    tenants=("support", "research"),
    keys=(ShownKey("support", "helpdesk", "cp_one"), ShownKey("research", "papers", "cp_two")),
    warnings=("guarantees exceed",),
)


def lines(ready: Ready) -> list[str]:
    return welcome(ready).splitlines()


def test_keys_and_addresses_are_shown() -> None:
    said = lines(READY)
    assert "  gateway  http://127.0.0.1:8080/v1" in said
    assert "  console  http://127.0.0.1:8081/" in said
    assert "  warning  guarantees exceed" in said
    assert "  support (helpdesk)  cp_one" in said
    assert "  research (papers)   cp_two" in said


def test_curl_line_is_whole_and_ready() -> None:
    (line,) = (line for line in lines(READY) if "curl " in line)
    program, url, *options = shlex.split(line)
    assert (program, url) == ("curl", "http://127.0.0.1:8080/v1/chat/completions")
    assert "Authorization: Bearer cp_one" in options
    assert json.loads(options[options.index("-d") + 1])["model"] == "smollm2"


def test_python_lines_are_python() -> None:
    said = lines(READY)
    begin = said.index("  from openai import OpenAI")
    code = "\n".join(line.strip() for line in said[begin : begin + 3])
    compile(code, "welcome", "exec")
    assert 'api_key="cp_one"' in code


def test_later_start_has_no_keys_to_show() -> None:
    said = lines(Ready(**{**{name: getattr(READY, name) for name in READY.__struct_fields__}, "keys": ()}))
    assert any("keys create --tenant support`" in line for line in said)
    assert not any("cp_" in line for line in said)


def test_where_commands_need_a_key_it_is_said_which_and_how() -> None:
    closed = msgspec.structs.replace(READY, local=False)
    (said,) = (line for line in lines(closed) if "access.local" in line)
    assert said.endswith("export COMMONPOOL_ADMIN_TOKEN=ADMIN_KEY")
    first = lines(msgspec.structs.replace(closed, keys=(ShownKey("", "", "cp_admin"), *READY.keys)))
    before = next(at for at, line in enumerate(first) if line.endswith("export COMMONPOOL_ADMIN_TOKEN=cp_admin"))
    assert first[before + 1].startswith("Then look: ")
    assert not any("COMMONPOOL_ADMIN_TOKEN" in line for line in lines(READY))


def test_the_platform_s_key_is_shown_as_what_it_is_and_asks_for_no_model() -> None:
    said = lines(msgspec.structs.replace(READY, keys=(ShownKey("", "", "cp_admin"), *READY.keys)))
    assert any(line.split() == ["platform-admin", "cp_admin"] for line in said)
    assert [line for line in said if "cp_admin" in line and "platform-admin" not in line] == []
    alone = lines(msgspec.structs.replace(READY, keys=(ShownKey("", "", "cp_admin"),)))
    assert any("Bearer YOUR_KEY" in line for line in alone)


def test_unreadable_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", str(tmp_path / "no.yaml")]) == ExitCode.INVALID_CONFIG
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"commonpool: {tmp_path / 'no.yaml'}: does not exist; check the path\n"


def test_it_does_not_start_while_its_database_is_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "commonpool.yaml"
    file.write_text(f"state: {tmp_path}\nstore: {{url: 'postgresql://u@/books?host={tmp_path}'}}\n{CONFIG}")
    assert run(["up", str(file)]) == ExitCode.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"commonpool: The PostgreSQL database books at {tmp_path} cannot be opened (")
    assert err.endswith("that its server runs, can be reached and lets this user in, and that its disk has space.\n")


def test_an_address_is_of_a_ray_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "--address", "auto"]) == ExitCode.FAILED
    assert "add --backend ray" in capsys.readouterr().err
