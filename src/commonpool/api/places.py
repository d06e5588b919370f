"""Where a listing goes on: the `after` of an answer, as it comes back from whoever asks for the next one."""

from commonpool.api.operations import BadRequestError

DIGITS_MAX = 19  # of a number that a store has room for; Python reads no number of thousands of digits
NUMBER_MAX = 2**63 - 1


def number(text: str) -> int | None:
    """A number that a store has room for, None where the text is none."""
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        return None
    found = int(text)
    return found if found <= NUMBER_MAX else None


def no_place(after: str) -> BadRequestError:
    """It is none of ours."""
    return BadRequestError(f"after {after!r} is not the `after` of an answer", param="after")
