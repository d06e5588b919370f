"""`commonpool compare`: what each department would wait and pay with cards of its own, against sharing."""

from commonpool.cli.advise import ConfigFile, Model, PresetName, Trace, Window, gather
from commonpool.cli.options import CONTROL_URL, Control, Json, TokenFile
from commonpool.cli.simulate import DEFAULT_FILE, PRESETS


def compare(
    *,
    window: Window = "14d",
    trace: Trace = None,
    config: ConfigFile = DEFAULT_FILE,
    model: Model = None,
    preset: PresetName = PRESETS[0],
    control: Control = CONTROL_URL,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Compare sharing with cards of one's own: each tenant's wait and cost, and how many cards it would need.

    Nothing is changed.
    """
    past = gather(window, trace, config, model, preset, control, token_file)
    from commonpool.cli import advising  # noqa: PLC0415 - the simulator is slow to import

    advising.compare(past, as_json=as_json)
