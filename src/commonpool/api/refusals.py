"""What people are told who are not let in: the errors of `access` as those of the API."""

from collections.abc import Mapping
from typing import Final

from commonpool.access import problems
from commonpool.api.operations import BadRequestError, ConflictError, NotFoundError, OperationError, UnavailableError
from commonpool.core.model import NS_PER_S


class NotLoggedInError(OperationError):
    """No credential, or none that is valid."""

    status = 401
    kind = "authentication_error"
    code = "invalid_credential"


class NotSoError(OperationError):
    """Who it is does not matter: not in this way."""

    status = 403
    kind = "permission_error"
    code = "forbidden"


class ForeignPageError(NotSoError):
    """A page of another origin sent it."""

    code = "foreign_page"


class OpenLineError(NotSoError):
    """A password would go over a line that others can read."""

    code = "open_line"


class NoRoleError(NotSoError):
    """Nobody has given this person anything to do here."""

    code = "no_role"


class TooManyError(OperationError):
    """Later. `wait_s` says when."""

    status = 429
    kind = "rate_limit_error"
    code = "too_many_logins"

    def __init__(self, message: str, wait_s: int) -> None:
        super().__init__(message)
        self.wait_s = wait_s


_NOT_SO: Final[Mapping[type[problems.AccessError], type[NotSoError]]] = {
    problems.ForeignPageError: ForeignPageError,
    problems.OpenLineError: OpenLineError,
    problems.NoRoleError: NoRoleError,
}


def refusal(error: problems.AccessError) -> OperationError:
    """What the API answers."""
    said = str(error)
    match error:
        case problems.CredentialError():
            return NotLoggedInError(said)
        case problems.TooManyGuessesError():
            return TooManyError(said, -(-error.wait_ns // NS_PER_S))
        case problems.AwayError():
            return UnavailableError(said)
        case problems.AccountError():
            return _of_account(error)
        case _:
            return _NOT_SO.get(type(error), NotSoError)(said)


def _of_account(error: problems.AccountError) -> OperationError:
    match error:
        case problems.NoAccountError():
            return NotFoundError(str(error), param="name")
        case problems.NameTakenError():
            return ConflictError(str(error), param="name")
        case problems.PasswordError():
            return BadRequestError(str(error), param="password")
        case _:
            return BadRequestError(str(error))


def headers_of(error: OperationError) -> dict[str, str]:
    """What is said in the headers of the answer: when to come again, how to show a credential."""
    match error:
        case TooManyError():
            return {"retry-after": str(error.wait_s)}
        case NotLoggedInError():
            return {"www-authenticate": "Bearer"}
        case _:
            return {}
