"""How a letter is posted to each kind of receiver, and what it answers where it took it. Pure.

- Feishu, custom bot (https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot): signed over nothing, with the
  time in seconds, a newline and the secret as the key; `code` 0 is success; 20 KB.
- DingTalk, custom robot (https://open.dingtalk.com/document/robots/custom-robot-access): the time in milliseconds, a
  newline and the secret are signed with the secret, in the query; `errcode` 0; 20,000 bytes; 20 messages a minute.
- WeCom, group robot (https://developer.work.weixin.qq.com/document/path/91770): `errcode` 0; markdown of 4096 bytes.
- Slack, incoming webhook (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks): 200 is success.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from commonpool.control.alerting.letters import PRODUCT, Letter, lines, title, within
from commonpool.core.model import NS_PER_S

FEISHU_BYTES: Final = 14_000
DINGTALK_BYTES: Final = 14_000
WECOM_BYTES: Final = 3_900
SLACK_BYTES: Final = 3_900
VERSION: Final = 1
HTTP_OK: Final = range(200, 300)
SHOWN_CHARS: Final = 120
SIGNATURE: Final = "x-commonpool-signature"
TIMESTAMP: Final = "x-commonpool-timestamp"

Moment = Callable[[int], str]


class Post(msgspec.Struct, frozen=True):
    """What is posted: to the channel's URL with this behind it, as JSON."""

    content: bytes
    query: str = ""
    headers: dict[str, str] = {}


class _Verdict(msgspec.Struct):
    """What the robots answer, each in its own words."""

    code: int | None = None
    errcode: int | None = None
    StatusCode: int | None = None
    msg: str = ""
    errmsg: str = ""


def post_of(kind: str, letter: Letter, secret: str | None, moment: Moment) -> Post:
    """What is posted to a receiver of this kind; signed where there is a secret."""
    return _POSTS[kind](letter, secret, moment)


def refused(kind: str, status: int, answer: bytes) -> str:
    """Why a receiver did not take it, without a full stop; "" where it did."""
    if status not in HTTP_OK:
        return f"it answers {status}{_said(answer)}"
    if kind in ("webhook", "slack"):
        return ""
    try:
        verdict = msgspec.json.decode(answer, type=_Verdict)
    except msgspec.MsgspecError:
        return f"it answers {status}, and not as a robot does"
    code = next((each for each in (verdict.errcode, verdict.code, verdict.StatusCode) if each is not None), None)
    if code == 0:
        return ""
    return f"it answers code {code}{_said((verdict.errmsg or verdict.msg).encode())}"


def _webhook(letter: Letter, secret: str | None, _: Moment) -> Post:
    content = msgspec.json.encode(_as_json(letter))
    if secret is None:
        return Post(content)
    at = str(letter.sent_ns // NS_PER_S)
    signed = hmac.new(secret.encode(), at.encode() + b"." + content, hashlib.sha256).hexdigest()
    return Post(content, headers={TIMESTAMP: at, SIGNATURE: f"v1={signed}"})


def _as_json(letter: Letter) -> dict[str, Any]:
    return {
        "version": VERSION,
        "source": PRODUCT,
        "channel": letter.channel,
        "tenant": letter.tenant,
        "pool": letter.pool,
        "title": title(letter),
        "test": not letter.items,
        "sent_ns": letter.sent_ns,
        "alerts": [
            {
                "id": item.episode.id,
                "name": item.episode.trouble.name,
                "severity": item.episode.trouble.condition.severity.value,
                "state": "resolved" if item.resolved else "firing",
                "again": item.again,
                "tenant": item.episode.trouble.tenant,
                "pool": item.episode.trouble.pool,
                "about": dict(item.episode.trouble.about),
                "sentence": item.episode.trouble.sentence,
                "advice": item.episode.trouble.condition.advice,
                "since_ns": item.episode.since_ns,
                "fired_ns": item.episode.fired_ns,
                "ended_ns": item.episode.ended_ns,
            }
            for item in letter.items
        ],
    }


def _feishu(letter: Letter, secret: str | None, moment: Moment) -> Post:
    text = "\n".join([title(letter), *_body(letter, moment, FEISHU_BYTES, _plain)])
    body: dict[str, Any] = {"msg_type": "text", "content": {"text": text}}
    if secret is not None:
        at = str(letter.sent_ns // NS_PER_S)
        body |= {"timestamp": at, "sign": _signed(key=f"{at}\n{secret}", text="")}
    return Post(msgspec.json.encode(body))


def _dingtalk(letter: Letter, secret: str | None, moment: Moment) -> Post:
    said = [f"- {line}" for line in _body(letter, moment, DINGTALK_BYTES, _plain)]
    text = "\n".join([f"### {title(letter)}", "", *said])
    body = {"msgtype": "markdown", "markdown": {"title": title(letter), "text": text}}
    query = ""
    if secret is not None:
        at = str(letter.sent_ns // (NS_PER_S // 1000))
        query = urlencode({"timestamp": at, "sign": _signed(key=secret, text=f"{at}\n{secret}")})
    return Post(msgspec.json.encode(body), query)


def _wecom(letter: Letter, _secret: str | None, moment: Moment) -> Post:
    said = [f"> {line}" for line in _body(letter, moment, WECOM_BYTES, _plain)]
    text = "\n\n".join([f"### {title(letter)}", *said])
    return Post(msgspec.json.encode({"msgtype": "markdown", "markdown": {"content": text}}))


def _slack(letter: Letter, _secret: str | None, moment: Moment) -> Post:
    said = [f"• {line}" for line in _body(letter, moment, SLACK_BYTES, _escaped)]
    return Post(msgspec.json.encode({"text": "\n".join([_escaped(title(letter)), *said])}))


def _body(letter: Letter, moment: Moment, most_bytes: int, clean: Callable[[str], str]) -> list[str]:
    return within(title(letter), [clean(line) for line in lines(letter, moment)], most_bytes)


def _signed(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def _plain(text: str) -> str:
    """Without what these robots take for mentions and fonts: an engine's words must not call a whole group."""
    return text.replace("<", "(").replace(">", ")")


def _escaped(text: str) -> str:
    """Slack's own three."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _said(answer: bytes) -> str:
    """What it says of it, where that is short and can be printed."""
    text = " ".join(answer[: 4 * SHOWN_CHARS].decode(errors="replace").split())[:SHOWN_CHARS]
    return f" ({text})" if text and text.isprintable() and not text.startswith("<") else ""


_POSTS: Final[dict[str, Callable[[Letter, str | None, Moment], Post]]] = {
    "webhook": _webhook,
    "feishu": _feishu,
    "dingtalk": _dingtalk,
    "wecom": _wecom,
    "slack": _slack,
}
