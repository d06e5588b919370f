"""What travels arrives as it was."""

import ssl

import msgspec
import pytest

from commonpool.cluster import messages
from commonpool.cluster.messages import Batch, Counted, Go, Reply
from commonpool.config import parse
from commonpool.core.events import Arrived, Cancelled, Ended
from commonpool.core.model import Cause, Outcome, Usage, Wait
from commonpool.engines.base import Target
from commonpool.engines.registry import LLAMACPP, OPENAI
from commonpool.gateway.caches import Part
from commonpool.observe.exporting import Became
from commonpool.store.contract import Key
from tests.cluster.hall import policy_config, request

NODES = """
pools: {main: {gpus: 4_gpu}}
nodes:
  one: {pool: main, gpus: 4, gpu_model: H100, gpu_memory: 80GiB, mig: {0: [1g.10gb, 2g.20gb]}, discover: true}
models:
  here: {version: "1", gpu: 1_gpu, slots: 1, context: 1Ki, engine: {kind: embedded, file: m.gguf}}
  there:
    version: "1"
    gpu: 1_gpu
    slots: 1
    context: 1Ki
    engine: {kind: attached, urls: ["http://10.0.0.1:8000"], devices: [one/1]}
prices: {currency: EUR, gpu_hour: {main: 2.50}}
tenants: {support: {tenant: {guaranteed: 4_gpu}}}
"""


@pytest.mark.parametrize("kind", ["plain", "with nodes"])
def test_a_configuration_arrives_as_it_was(kind: str) -> None:
    config = policy_config() if kind == "plain" else parse(NODES, "/etc/commonpool/commonpool.yaml")
    assert messages.unpack_config(messages.pack_config(config)) == config


def test_a_batch_arrives_as_it_was() -> None:
    ended = Ended("1", 1, Outcome.COMPLETED, Usage(1, 0, 2))
    events: list[messages.Told] = [
        Arrived(request("1")),
        ended,
        Cancelled("2"),
        Counted({"invalid_api_key": 2}, [("a", "refused", 1)], Became(3, 2, 1)),
    ]
    batch = Batch("gateway-a", "1", 7, 3, events)
    assert messages.decode_batch(messages.encode(batch)) == batch


def test_a_replica_is_reached_by_what_arrives() -> None:
    target = Target("m-0.1", "10.0.0.7", 8000, LLAMACPP, "m", "/x", b"Bearer k")
    go = Go("1", 2, 3, (Wait(Cause.SLOTS, "m", 3),), messages.address_of(target), Part({"id_slot": b"1"}, "head"))
    (arrived,) = messages.decode_reply(messages.encode(Reply(4, [go]))).news
    assert arrived == go
    assert messages.target_of(messages.address_of(target)) == target


def test_a_tls_target_is_the_same_one_each_time_so_that_its_connections_are_kept() -> None:
    target = Target("m-0.1", "m.internal", 443, OPENAI, "m", tls=ssl.create_default_context())
    address = messages.address_of(target)
    travelled = msgspec.msgpack.decode(messages.encode(address), type=type(address))
    assert messages.target_of(travelled) is messages.target_of(address)
    assert messages.target_of(address).tls is not None


def test_a_revoked_key_says_so() -> None:
    key = Key("k1", b"salt", b"digest", "data", "support", "helpdesk", 1)
    assert messages.revoked(key).revoked_ns is not None
