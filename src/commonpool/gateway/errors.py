"""Errors as clients of the OpenAI API expect them: one shape, one table from the core's reasons to statuses."""

from collections.abc import Iterable
from typing import Final

import msgspec

from commonpool.core.effects import Refuse
from commonpool.core.model import Reason
from commonpool.gateway.repeats import Slowed

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
NAMES_SHOWN: Final = 50
SPENT: Final = "insufficient_quota"  # a 429 that no waiting helps
RUN_TIME: Final = "run_time_exceeded"  # a 504 that would only come again
_FINAL: Final = frozenset({SPENT, RUN_TIME})  # not to be tried again

PHRASES: Final[dict[int, str]] = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}

_REASONS: Final[dict[Reason, tuple[int, str]]] = {
    Reason.NEVER_FITS: (400, "never_fits"),
    Reason.QUEUE_FULL: (429, "queue_full"),
    Reason.PROMISE: (429, "promise_exceeded"),
    Reason.REQUESTS_PER_MINUTE: (429, "rate_limit_exceeded"),
    Reason.TOKENS_PER_MINUTE: (429, "rate_limit_exceeded"),
    Reason.BYTES_PER_SECOND: (429, "rate_limit_exceeded"),
    Reason.CONCURRENCY: (429, "rate_limit_exceeded"),
    Reason.INPUT: (400, "input_too_long"),
    Reason.OUTPUT: (400, "output_too_long"),
    Reason.RUN_TIME: (504, RUN_TIME),
    Reason.KEY_REVOKED: (401, "invalid_api_key"),
    Reason.BUDGET: (429, SPENT),
    Reason.NO_REPLICA: (503, "no_replica"),
    Reason.NO_JOURNAL: (503, "no_journal"),
    Reason.UNKNOWN_TENANT: (403, "tenant_not_found"),
    Reason.UNKNOWN_MODEL: (404, "model_not_found"),
    Reason.UNKNOWN_POOL: (404, "pool_not_found"),
    Reason.UNKNOWN_TIER: (400, "tier_not_found"),
}

# Of these there is no record: nobody and nothing to charge it to, or nowhere to keep it.
_UNRECORDED: Final = frozenset({Reason.NO_JOURNAL, Reason.UNKNOWN_TENANT, Reason.UNKNOWN_MODEL, Reason.UNKNOWN_POOL})


class ApiError(Exception):
    """An answer that is an error: `status` and the fields of the body; `message` is one sentence for people.

    `retry_after_ns` becomes `retry-after` and `retry-after-ms`; `allow` names the methods of a path (405). `close`
    ends the connection after the answer, since what follows on it cannot be trusted or is not wanted. `slowed`: it is
    held back for a while. `recorded`: the core keeps a record of the request, and its end is counted by that.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_ns: int | None = None,
        allow: str | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_ns = retry_after_ns
        self.allow = allow
        self.close = close
        self.slowed: Slowed | None = None
        self.recorded = False

    def body(self) -> bytes:
        return render(self.status, self.code, self.message, self.param)

    def headers(self) -> bytes:
        """The header lines that belong to this error, each with its line end."""
        lines = b""
        if self.retry_after_ns is not None:
            milliseconds = max(1, -(-self.retry_after_ns // NS_PER_MS))
            seconds = max(1, -(-self.retry_after_ns // NS_PER_S))
            lines += b"retry-after: %d\r\nretry-after-ms: %d\r\n" % (seconds, milliseconds)
        if self.code in _FINAL:
            lines += b"x-should-retry: false\r\n"  # official clients would try any other 429 or 5xx again
        if self.slowed is not None:
            lines += self.slowed.header()
        if self.allow is not None:
            lines += b"allow: %b\r\n" % self.allow.encode()
        if self.status == 401:  # noqa: PLR2004 - the status is its own name
            lines += b"www-authenticate: Bearer\r\n"
        return lines


def error_type(status: int, code: str = "") -> str:
    """The `type` that OpenAI's own service uses for a status."""
    if code == SPENT:
        return SPENT
    match status:
        case 401:
            return "authentication_error"
        case 403:
            return "permission_error"
        case 429:
            return "rate_limit_error"
        case _ if status >= 500:  # noqa: PLR2004
            return "server_error"
        case _:
            return "invalid_request_error"


def render(status: int, code: str, message: str, param: str | None = None) -> bytes:
    """The JSON body of an error."""
    return msgspec.json.encode(
        {"error": {"message": message, "type": error_type(status, code), "param": param, "code": code}}
    )


def of_refusal(refusal: Refuse) -> ApiError:
    """The answer to a request that the core refused."""
    status, code = _REASONS[refusal.reason]
    param = "max_tokens" if refusal.reason is Reason.OUTPUT else None
    error = ApiError(status, code, refusal.message, param=param, retry_after_ns=refusal.retry_after_ns)
    error.recorded = refusal.reason not in _UNRECORDED
    return error


def model_not_found(model: str, allowed: Iterable[str]) -> ApiError:
    """404 that names what the tenant may use, so that a typo is seen at once."""
    message = f"The model {shown(model)} does not exist or is not open to this key; {listing(allowed)}."
    return ApiError(404, "model_not_found", message, param="model")


def listing(names: Iterable[str]) -> str:
    """The names a client may use, as a clause; the first ones only where there are very many."""
    known = sorted(names)
    if not known:
        return "there is none it may use"
    more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
    return "it may use: " + ", ".join(known[:NAMES_SHOWN]) + more


def shown(value: object) -> str:
    """A client's value as an error quotes it: on one line, cut to a length that does not flood a log."""
    text = msgspec.json.encode(value).decode() if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004 - a line's width
