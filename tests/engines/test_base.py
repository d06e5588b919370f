"""Targets and the table of adapters."""

import ssl
from typing import get_args, get_type_hints

import pytest

from commonpool.config.structs import AttachedEngine
from commonpool.engines.base import Target
from commonpool.engines.registry import ADAPTERS, EMBEDDED, LLAMACPP


@pytest.mark.parametrize(
    ("host", "tls", "url"),
    [
        ("10.0.0.1", None, "http://10.0.0.1:8000/base"),
        ("::1", None, "http://[::1]:8000/base"),
        ("gpu", ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "https://gpu:8000/base"),
    ],
)
def test_a_target_shows_its_address_and_never_its_credential(host: str, tls: ssl.SSLContext | None, url: str) -> None:
    target = Target("m-0.1", host, 8000, LLAMACPP, "m", "/base", b"Bearer topsecret", tls)
    assert target.url == url
    assert "topsecret" not in f"{target!r} {target} {[target]}"


def test_every_adapter_of_the_configuration_is_known() -> None:
    assert {*get_args(get_type_hints(AttachedEngine)["adapter"]), EMBEDDED.name} == set(ADAPTERS)
    assert all(adapter.name == name for name, adapter in ADAPTERS.items())


def test_usage_of_each_choice_is_only_told_in_streams() -> None:
    assert all(adapter.frees_streams_only for adapter in ADAPTERS.values() if adapter.usage_per_choice)
