"""Why somebody does not come in, each as one sentence for people. None of them says what was wrong with a secret."""


class AccessError(Exception):
    """Somebody is not let in, or not so."""


class CredentialError(AccessError):
    """What was shown is not valid, or no more: log in again, or bring another token."""


class ForeignPageError(AccessError):
    """A page of another origin sent a change with somebody's cookie, or whoever sent it does not say where from."""


class OpenLineError(AccessError):
    """A password would go, or went, over a line that others can read."""


class NoRoleError(AccessError):
    """The issuer knows this person, and nobody has given them anything to do here."""


class TooManyGuessesError(AccessError):
    """Too many passwords were wrong lately. `wait_ns` is how long until the next may be tried."""

    def __init__(self, message: str, wait_ns: int) -> None:
        super().__init__(message)
        self.wait_ns = wait_ns


class AwayError(AccessError):
    """The issuer does not answer, or not as one would."""


class AccountError(AccessError):
    """Something cannot be done with an account."""


class NoAccountError(AccountError):
    """There is no account of this name."""


class NameTakenError(AccountError):
    """There is an account of this name already."""


class PasswordError(AccountError):
    """A new password will not do."""
