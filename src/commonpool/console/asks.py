"""What a form says that work needs of the GPUs: the fields of `pieces.hardware_fields`."""

from collections.abc import Mapping

from commonpool.config.quantities import QuantityError, parse_duration, parse_gpu, parse_memory
from commonpool.console.asking import RefusedError
from commonpool.console.frame import Form
from commonpool.core.model import Hardware, Together

BAD_REQUEST = 400
TOGETHER: Mapping[str, Together] = {"node": "node", "island": "island", "any": "any"}


def hardware(form: Form) -> Hardware:
    """Raises RefusedError where a field is not such a quantity, or where nothing is asked for."""
    gpus, memory, profile = form.get("gpus"), form.get("memory"), form.get("profile")
    if not (gpus or memory or profile):
        raise RefusedError(BAD_REQUEST, "it is not said what the job needs; give GPUs, memory or a MIG profile")
    try:
        return Hardware(
            milli_gpu=parse_gpu(gpus) if gpus else 0,
            memory_mib=parse_memory(memory) if memory else 0,
            profile=profile,
            count=number(form, "count", 1),
            together=TOGETHER.get(form.get("together"), "node"),
            models=tuple(filter(None, (name.strip() for name in form.get("models").split(",")))),
        )
    except QuantityError as error:
        raise RefusedError(BAD_REQUEST, str(error)) from None


def expected(form: Form) -> int | None:
    """How long it will take, in nanoseconds; None where it is not said. Raises RefusedError."""
    text = form.get("expected")
    try:
        return parse_duration(text) if text else None
    except QuantityError as error:
        raise RefusedError(BAD_REQUEST, str(error)) from None


def number(form: Form, name: str, usual: int) -> int:
    """A whole number of a field, the usual one where it is empty. Raises RefusedError."""
    text = form.get(name)
    if not text:
        return usual
    if not (text.isascii() and text.isdecimal() and len(text) < len("100000")):
        raise RefusedError(BAD_REQUEST, f"{text!r} is not a whole number between 0 and 99999 for {name}")
    return int(text)
