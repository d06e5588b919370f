"""How a command ends: its exit codes, and the error that carries one."""

import enum


class ExitCode(enum.IntEnum):
    """The exit codes, the same for every command; docs/cli.md explains them."""

    OK = 0
    FAILED = 1  # refused or failed; for `diff`, that there are differences
    USAGE = 2
    INVALID_CONFIG = 3
    UNREACHABLE = 4
    NOT_ALLOWED = 5
    PRODUCT_ERROR = 6
    INTERNAL = 70
    INTERRUPTED = 130


EPILOG = (
    "Exit codes: 0 done, 1 refused or failed (diff: there are differences), 2 wrong usage, 3 invalid configuration,"
    " 4 product not reachable, 5 not allowed, 6 error of the product, 70 error of this command, 130 interrupted."
)


class CommandError(Exception):
    """The command ends here. The text is what its user reads: one sentence, or one line a problem.

    `passing`: the product says that it will be otherwise soon.
    """

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED, *, passing: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.passing = passing
