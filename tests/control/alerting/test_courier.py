"""Letters to real receivers on loopback: what each kind is sent is signed and shaped as its maker says."""

import base64
import hashlib
import hmac
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest

from commonpool.config.structs import Address, Channel, Mail
from commonpool.control.alerting.courier import Outside, UndeliveredError
from commonpool.control.alerting.formats import SIGNATURE, TIMESTAMP
from commonpool.control.alerting.letters import Letter, trial_letter
from commonpool.core.firing import Episode
from commonpool.core.model import NS_PER_S
from commonpool.core.telling import Item
from tests.access.certificates import Authority
from tests.control.alerting.receivers import Hook, hook, mailbox
from tests.core.troubles import DOWN, SCALED, SOFT
from tests.gateway.fakes import run

NOW = 1_800_000_000 * NS_PER_S
OVER = msgspec.structs.replace(Episode(SOFT, NOW, NOW, NOW), ended_ns=NOW)
LETTER = Letter("ops", "", "main", (Item(Episode(DOWN, NOW, NOW, NOW)), Item(OVER)), NOW)
ENVIRONMENT = {"SECRET": "s3cr3t", "MAIL": "word-of-mail", "WRONG": "no"}
LIMITS = {"feishu": 20_000, "dingtalk": 20_000, "wecom": 4_096, "slack": 4_000}


def moment(at_ns: int) -> str:
    return f"<{at_ns // NS_PER_S}>"


def outside(trusted: ssl.SSLContext | None = None, destinations: tuple[str, ...] | None = None) -> Outside:
    context = trusted or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return Outside(destinations, environment=ENVIRONMENT, trusted=lambda: context)


async def told(channel: Channel, letter: Letter = LETTER, **options: Any) -> None:
    courier = outside(**options)
    try:
        await courier.deliver(channel, letter, moment)
    finally:
        await courier.close()


async def robot(receiver: Hook, tmp_path: Path, kind: str, secret: str | None = None, letter: Letter = LETTER) -> Any:
    """What a robot of this kind is posted."""
    place = tmp_path / "url"
    place.write_text(f"{receiver.url}/robot/send?access_token=t0ken")
    channel = Channel("ops", kind, url=f"file:{place}", secret=secret)  # type: ignore[arg-type]
    await told(channel, letter)
    return receiver.posted[-1]


def signed(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def test_a_webhook_gets_all_of_it_as_json_with_a_signature() -> None:
    async def story() -> None:
        async with hook() as receiver:
            await told(Channel("ops", "webhook", url=f"{receiver.url}/in", secret="env:SECRET"))
            (posted,) = receiver.posted
            assert (posted.path, posted.headers["content-type"]) == ("/in", "application/json; charset=utf-8")
            at = posted.headers[TIMESTAMP]
            wanted = hmac.new(b"s3cr3t", at.encode() + b"." + posted.body, hashlib.sha256).hexdigest()
            assert (at, posted.headers[SIGNATURE]) == (str(NOW // NS_PER_S), f"v1={wanted}")
            said = posted.json
            assert (said["version"], said["source"], said["channel"], said["pool"]) == (1, "commonpool", "ops", "main")
            first, second = said["alerts"]
            assert (first["name"], first["severity"], first["state"]) == ("model_down", "critical", "firing")
            assert (first["id"], first["about"], first["fired_ns"]) == (DOWN.id, {"model": "m"}, NOW)
            assert (second["name"], second["state"], second["ended_ns"]) == ("budget_soft", "resolved", NOW)

    run(story)


def test_feishu_is_signed_over_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with hook() as receiver:
            said = (await robot(receiver, tmp_path, "feishu", "env:SECRET")).json
            at = said["timestamp"]
            assert (at, said["sign"]) == (str(NOW // NS_PER_S), signed(f"{at}\ns3cr3t", ""))
            assert said["msg_type"] == "text"
            assert said["content"]["text"].startswith("[commonpool] critical: 1 firing, 1 resolved in pool main\n")
            assert "CRITICAL model_down" in said["content"]["text"]

    run(story)


def test_dingtalk_is_signed_in_the_query(tmp_path: Path) -> None:
    async def story() -> None:
        async with hook() as receiver:
            posted = await robot(receiver, tmp_path, "dingtalk", "env:SECRET")
            (at,), (sign,) = posted.query["timestamp"], posted.query["sign"]
            assert (at, sign) == (str(NOW // 1_000_000), signed("s3cr3t", f"{at}\ns3cr3t"))
            assert posted.query["access_token"] == ["t0ken"]
            assert posted.json["msgtype"] == "markdown"
            assert posted.json["markdown"].keys() == {"title", "text"}

    run(story)


def test_wecom_and_slack_have_their_own_shapes(tmp_path: Path) -> None:
    async def story() -> None:
        async with hook() as receiver:
            said = (await robot(receiver, tmp_path, "wecom")).json
            assert said["msgtype"] == "markdown"
            assert "model_down" in said["markdown"]["content"]
            receiver.answer = b"ok"
            said = (await robot(receiver, tmp_path, "slack")).json
            assert said.keys() == {"text"}
            assert "RESOLVED budget_soft" in said["text"]

    run(story)


@pytest.mark.parametrize("kind", LIMITS)
def test_a_flood_fits_and_says_how_much_was_left_out(kind: str, tmp_path: Path) -> None:
    many = [Item(Episode(msgspec.structs.replace(SCALED, pool=f"p{number}"), NOW, NOW, NOW)) for number in range(1000)]

    async def story() -> None:
        async with hook() as receiver:
            posted = await robot(receiver, tmp_path, kind, letter=msgspec.structs.replace(LETTER, items=tuple(many)))
            text = posted.body.decode()
            assert len(posted.body) <= LIMITS[kind] + 100  # around the text itself
            assert "warning: 1000 firing" in text
            shown = text.count("guarantees_scaled")
            assert f"and {1000 - shown} more" in text

    run(story)


@pytest.mark.parametrize("kind", ["feishu", "dingtalk", "wecom", "slack"])
def test_what_an_engine_says_calls_nobody(kind: str, tmp_path: Path) -> None:
    rude = msgspec.structs.replace(DOWN, sentence='<at user_id="all"></at> <!channel> & <@all>')
    letter = msgspec.structs.replace(LETTER, items=(Item(Episode(rude, NOW, NOW, NOW)),))

    async def story() -> None:
        async with hook() as receiver:
            text = (await robot(receiver, tmp_path, kind, letter=letter)).body.decode()
            assert "<" not in text

    run(story)


@pytest.mark.parametrize(
    ("kind", "status", "answer", "why"),
    [
        ("webhook", 500, b"down for now", "it answers 500 (down for now)"),
        ("webhook", 302, b"", "it answers 302"),
        ("slack", 403, b"invalid_token", "it answers 403 (invalid_token)"),
        ("dingtalk", 200, b'{"errcode":310000,"errmsg":"sign not match"}', "it answers code 310000 (sign not match)"),
        ("wecom", 200, b'{"errcode":45009,"errmsg":"too often"}', "it answers code 45009 (too often)"),
        ("feishu", 200, b'{"code":19021,"msg":"sign match fail"}', "it answers code 19021 (sign match fail)"),
        ("feishu", 200, b"<html>", "it answers 200, and not as a robot does"),
    ],
)
def test_what_is_not_taken_says_why(kind: str, status: int, answer: bytes, why: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with hook() as receiver:
            receiver.status, receiver.answer = status, answer
            sent = (
                told(Channel("ops", "webhook", url=receiver.url))
                if kind == "webhook"
                else robot(receiver, tmp_path, kind)
            )
            with pytest.raises(UndeliveredError) as caught:
                await sent
            assert str(caught.value) == why

    run(story)


def test_what_is_not_allowed_or_away_says_so_without_the_secret(tmp_path: Path) -> None:
    place = tmp_path / "url"

    async def story() -> None:
        async with hook() as receiver:
            place.write_text(f"{receiver.url}/t0ken")
            channel = Channel("ops", "slack", url=f"file:{place}")
            with pytest.raises(UndeliveredError, match="not one of the destinations under outgoing"):
                await told(channel, destinations=("10.0.0.0/8",))
            assert not receiver.posted
        with pytest.raises(UndeliveredError) as caught:  # it has closed
            await told(channel)
        assert "t0ken" not in str(caught.value)
        with pytest.raises(UndeliveredError, match=r"alerts.channels.ops.url is file:.*cannot be read"):
            await told(Channel("ops", "slack", url="file:/nowhere/at/all"))

    run(story)


# -- e-mail ------------------------------------------------------------------------------------------------------------


def mail(port: int, **more: Any) -> Channel:
    return Channel(
        "mail", "email", mail=Mail(Address("localhost", port), "pool@house.example", ("a@b.example",), **more)
    )


def server_context(authority: Authority) -> ssl.SSLContext:
    files = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


async def mailed(channel: Channel, trusted: ssl.SSLContext | None = None, letter: Letter = LETTER) -> None:
    await outside(trusted).deliver(channel, letter, moment)


def test_an_e_mail_goes_by_starttls_with_a_login(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def story() -> None:
        async with mailbox(starttls=server_context(authority), login=True) as box:
            channel = mail(box.port, user="pool", password="env:MAIL")
            await mailed(channel, authority.trusting())
            (message,) = box.mails
            assert (box.logins, box.encrypted) == ([(b"pool", b"word-of-mail")], [True])
            assert box.recipients == ["a@b.example"]
            assert message["subject"] == "[commonpool] critical: 1 firing, 1 resolved in pool main"
            assert (message["from"], message["auto-submitted"]) == ("pool@house.example", "auto-generated")
            assert "CRITICAL model_down" in message.get_payload()
            with pytest.raises(UndeliveredError, match=r"localhost does not let pool in \(535\)"):
                await mailed(mail(box.port, user="pool", password="env:WRONG"), authority.trusting())

    run(story)


def test_an_e_mail_goes_by_tls_from_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def story() -> None:
        async with mailbox(implicit=server_context(authority)) as box:
            await mailed(mail(box.port, tls="implicit"), authority.trusting(), trial_letter("mail", "", NOW))
            (message,) = box.mails
            assert (message["subject"], box.encrypted) == ("[commonpool] test of channel mail", [True])

    run(story)


def test_a_server_that_is_not_trusted_is_told_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def story() -> None:
        async with mailbox(starttls=server_context(authority)) as box:
            with pytest.raises(UndeliveredError, match="there is no TLS with localhost"):
                await mailed(mail(box.port), ssl.create_default_context())
            assert not box.mails
        async with mailbox() as box:  # and one that has no TLS, too
            with pytest.raises(UndeliveredError, match="offers no STARTTLS"):
                await mailed(mail(box.port))
            await mailed(mail(box.port, tls="none"))
            assert box.encrypted == [False]

    run(story)
