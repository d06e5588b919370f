"""The head of a request, read strictly and once.

llhttp does the reading; what it lets pass and a strict server does not is refused here. A head ends where its blank
line ends and not one byte later: the caller keeps the rest, so nothing is ever read ahead into a following request.
"""

import re
from typing import Final

import httptools
import msgspec

from commonpool.gateway.errors import ApiError
from commonpool.observe.traces import usable_state

HEAD_BYTES_MAX: Final = 64 * 1024
TARGET_BYTES_MAX: Final = 8 * 1024
HEADERS_MAX: Final = 100
TEMPLATE_BYTES_MAX: Final = 4096
_END: Final = b"\r\n\r\n"
_LENGTH_LINE: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*\r\n", re.IGNORECASE)
_TRACEPARENT: Final = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_QUOTED: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_HOST: Final = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*[ \t]*")
_LENGTH_DIGITS_MAX: Final = 15
_SINGLE: Final = frozenset({b"host", b"authorization"})
_WANTED: Final = _SINGLE | {
    b"connection",
    b"content-encoding",
    b"content-length",
    b"expect",
    b"prefer",
    b"traceparent",
    b"tracestate",
    b"transfer-encoding",
}


class Head(msgspec.Struct, frozen=True, gc=False):
    """What the gateway uses of a request's head.

    `path` is the target without its query. `length` is the Content-Length, None without one. `expects` is
    `Expect: 100-continue`. `traceparent` is None unless it is well formed, and `tracestate` where that is None, too.
    `later`: the client takes its answer later (`Prefer: respond-async`, RFC 7240).
    """

    method: str
    path: bytes
    http10: bool
    keep_alive: bool
    authorization: bytes | None
    length: int | None
    chunked: bool
    expects: bool
    traceparent: bytes | None
    tracestate: bytes | None = None
    later: bool = False


class _Fields:
    """What llhttp calls back with; apart from the reader, so that parser and reader form no cycle for the collector."""

    __slots__ = ("count", "url", "values", "whole")

    def __init__(self) -> None:
        self.url = b""
        self.count = 0
        self.values: dict[bytes, bytes] = {}
        self.whole = False

    def on_url(self, piece: bytes) -> None:
        self.url += piece
        if len(self.url) > TARGET_BYTES_MAX:
            raise ApiError(
                414,
                "target_too_long",
                f"The request target is longer than {TARGET_BYTES_MAX} bytes; put what it carries into the body.",
                close=True,
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        self.count += 1
        if self.count > HEADERS_MAX:
            raise _too_large()
        name = name.lower()
        if name not in _WANTED:
            return
        if name in self.values:
            if name in _SINGLE:
                raise _malformed(f"it has two {name.decode()} headers")
            value = self.values[name] + b", " + value
        self.values[name] = value

    def on_headers_complete(self) -> None:
        self.whole = True


class HeadReader:
    """Reads one head, in as many pieces as it comes in; a bad one raises `ApiError` with `close` set."""

    __slots__ = ("_fields", "_first", "_parser", "_seam", "_size", "head")

    def __init__(self) -> None:
        self.head: Head | None = None
        self._fields = _Fields()
        self._parser = httptools.HttpRequestParser(self._fields)
        self._first = b""
        self._seam = b""  # the last bytes fed, where the blank line may have begun
        self._size = 0

    @property
    def begun(self) -> bool:
        """Whether any byte of a head was seen; blank lines before it do not count."""
        return self._size > 0

    def feed(self, data: bytes) -> bytes:
        """Read on; what comes back lies behind the head, and then `head` is set."""
        if not self._size:
            data = data.lstrip(b"\r\n")  # blank lines before a request are to be ignored (RFC 9112, 2.2)
            if not data:
                return b""
        seam = self._seam
        at = (seam + data).find(_END) if seam else data.find(_END)
        cut = len(data) if at < 0 else at + len(_END) - len(seam)
        rest = data[cut:]
        piece = data[:cut] if rest else data
        self._first = self._first or piece[:1]
        self._size += len(piece)
        self._parse(piece)
        if self._size > HEAD_BYTES_MAX:
            raise _too_large()
        if at < 0:
            self._seam = (seam + piece)[-3:]
        else:
            self.head = self._check()
        return rest

    def _parse(self, piece: bytes) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            return  # no other protocol is spoken here; the request is served as it stands
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, ApiError):
                raise error.__context__ from None
            raise
        except httptools.HttpParserInvalidMethodError:
            raise _bad_method(self._first) from None
        except httptools.HttpParserError as error:
            reason = str(error)
            if "HTTP version" in reason or "PRI" in reason:
                raise _bad_version() from None
            raise _malformed(reason) from None

    def _check(self) -> Head:
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise _bad_version()
        if not self._fields.whole:
            raise _malformed("it ends too early")
        http10 = version == "1.0"
        value = self._fields.values.get
        host = value(b"host")
        if host is None and not http10:
            raise _malformed("it has no Host header")
        if host is not None and _HOST.fullmatch(host) is None:
            raise _malformed("its Host header is not a host")
        chunked = _token(value(b"transfer-encoding"))
        if chunked and (http10 or chunked != b"chunked"):
            raise ApiError(
                501, "transfer_encoding", "The only Transfer-Encoding is chunked, and only with HTTP/1.1.", close=True
            )
        if _token(value(b"content-encoding")) not in (b"", b"identity"):
            raise ApiError(
                415, "content_encoding", "A body with a Content-Encoding is not read; send it as it is.", close=True
            )
        expect = _token(value(b"expect"))
        if expect not in (b"", b"100-continue"):
            raise ApiError(417, "expectation_failed", "The only expectation met is 100-continue.", close=True)
        connection = {token.strip() for token in _token(value(b"connection")).split(b",")}
        length = value(b"content-length")
        trace = value(b"traceparent")
        trace = trace if trace is None else trace.strip(b" \t")
        trace = trace if trace is not None and _TRACEPARENT.fullmatch(trace) else None
        prefer = value(b"prefer")
        return Head(
            method=self._parser.get_method().decode(),
            path=_path(self._fields.url),
            http10=http10,
            keep_alive=b"close" not in connection and (not http10 or b"keep-alive" in connection),
            authorization=value(b"authorization"),
            length=None if length is None else int(length),
            chunked=bool(chunked),
            expects=bool(expect) and not http10,
            traceparent=trace,
            tracestate=None if trace is None else usable_state(value(b"tracestate")),
            later=prefer is not None and _takes_later(prefer),
        )


class Template:
    """The head that a kept-alive client repeats: all of it but the digits of its Content-Length.

    Bytes equal to a head that was read once mean what they meant then, so they need no second reading.
    """

    __slots__ = ("_at", "_prefix", "_suffix", "head")

    def __init__(self, prefix: bytes, suffix: bytes, head: Head) -> None:
        self._prefix = prefix
        self._suffix = suffix
        self._at = len(prefix)
        self.head = head

    @classmethod
    def learn(cls, raw: bytes, head: Head) -> "Template | None":
        """A template from a whole head, None where it is not of the plain kind."""
        plain = head.length is not None and head.keep_alive and not head.expects and not head.http10
        if not plain or len(raw) > TEMPLATE_BYTES_MAX:
            return None
        found = _LENGTH_LINE.search(raw)
        return None if found is None else cls(raw[: found.start(1)], raw[found.end(1) :], head)

    def match(self, data: bytes) -> tuple[int, int] | None:
        """(length of the head, its Content-Length), None where `data` does not begin with such a head."""
        at = self._at
        if not data.startswith(self._prefix):
            return None
        end = data.find(b"\r", at, at + _LENGTH_DIGITS_MAX + 1)
        digits = data[at:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self._suffix, end):
            return None
        return end + len(self._suffix), int(digits)


def _token(value: bytes | None) -> bytes:
    return b"" if value is None else value.strip().lower()


def _takes_later(prefer: bytes) -> bool:
    """Whether `respond-async` is among the preferences, with whatever parameters; other values stand in quotes."""
    return any(_token(each.partition(b";")[0]) == b"respond-async" for each in _QUOTED.sub(b"", prefer).split(b","))


def _path(target: bytes) -> bytes:
    path = target.partition(b"?")[0]
    if path[:7].lower() == b"http://":  # the absolute form, which every server has to accept
        _, slash, path = path[7:].partition(b"/")
        path = slash + path or b"/"
    return path


def _too_large() -> ApiError:
    return ApiError(
        431,
        "headers_too_large",
        f"The request's head is larger than {HEAD_BYTES_MAX} bytes or {HEADERS_MAX} headers.",
        close=True,
    )


def _bad_version() -> ApiError:
    return ApiError(505, "http_version", "The versions spoken here are HTTP/1.1 and HTTP/1.0.", close=True)


def _bad_method(first: bytes) -> ApiError:
    if first == b"\x16":
        return _malformed("it looks like TLS, and this port speaks plain HTTP")
    if first.isalpha():
        return ApiError(501, "method", "The request's method is not known here.", close=True)
    return _malformed("it does not begin with a method")


def _malformed(reason: str) -> ApiError:
    return ApiError(400, "malformed_request", f"The request's head is malformed: {reason}.", close=True)
