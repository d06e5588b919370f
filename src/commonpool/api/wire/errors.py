"""The body of an answer that is not a success."""

import msgspec

from commonpool.config import Problem


class Error(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a call failed. `problems` are those of a refused configuration."""

    message: str
    type: str
    code: str
    param: str | None = None
    problems: tuple[Problem, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: Error
