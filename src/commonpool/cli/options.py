"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

CONTROL_URL = "http://127.0.0.1:8081"

Control = Annotated[
    str, typer.Option("--control", envvar="COMMONPOOL_CONTROL", metavar="URL", help="The product's control plane.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with an admin key; COMMONPOOL_ADMIN_TOKEN may hold the key instead. On the product's own machine"
        " none is needed.",
        show_default=False,
    ),
]
RequestId = Annotated[
    str, typer.Argument(metavar="REQUEST_ID", help="The request's id: `x-request-id` in its answer; or a job's.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
