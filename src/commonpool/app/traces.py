"""Where traces of requests go, by the configuration and by OpenTelemetry's own variables."""

import os
import secrets
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote

from commonpool.access.problems import AwayError
from commonpool.access.web import Web
from commonpool.config.structs import Config
from commonpool.observe.exporting import Exporter, ExportError
from commonpool.observe.traces import Traces

PATH: Final = "/v1/traces"
SERVICE: Final = "commonpool"
_INSTANCE_BYTES: Final = 8


def exporter(config: Config, environment: Mapping[str, str] = os.environ) -> Exporter | None:
    """What takes traces to the collector; None where the configuration names none."""
    endpoint = config.observe.traces.endpoint
    if endpoint is None:
        return None
    web, url = Web(config.outgoing), endpoint + PATH
    headers = {**_headers(environment), "content-type": "application/x-protobuf"}

    async def send(payload: bytes) -> int:
        try:
            status, _ = await web.send(url, payload, headers)
        except AwayError as error:
            raise ExportError(str(error)) from None
        return status

    return Exporter(send, resource(environment))


def traces(config: Config, exporter: Exporter | None, clock: Callable[[], int]) -> Traces | None:
    """What begins the traces that this exporter takes."""
    if exporter is None:
        return None
    return Traces(exporter.offer, config.observe.traces.sample_permille, clock, close=exporter.close)


def resource(environment: Mapping[str, str]) -> dict[str, str]:
    """Who is traced: OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say more of it."""
    named = environment.get("OTEL_SERVICE_NAME")
    return {
        "service.name": SERVICE,
        "service.instance.id": secrets.token_hex(_INSTANCE_BYTES),
        **_listed(environment.get("OTEL_RESOURCE_ATTRIBUTES", "")),
        **({"service.name": named} if named else {}),
    }


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    """What the collector wants to see, such as a key: in the environment, so that it is in no file of ours."""
    said = environment.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environment.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    return {name.lower(): value for name, value in _listed(said).items()}


def _listed(text: str) -> dict[str, str]:
    """`a=b,c=d`, percent-encoded; what is no pair is left out."""
    pairs = (part.partition("=") for part in text.split(","))
    return {unquote(name.strip()): unquote(value.strip()) for name, equals, value in pairs if equals and name.strip()}
