"""A tenant at its cap says so, an operator's grant lets it go on at once, and a grant's end holds it back again."""

from contextlib import ExitStack
from pathlib import Path

from tests.acceptance.product import running
from tests.acceptance.test_durability import engine
from tests.acceptance.test_waits import opened, status, until

CONFIG = """
pools: {{main: {{gpus: 4_gpu}}}}
models:
  mock:
    version: "1"
    gpu: 4_gpu
    slots: 4
    context: 4096
    engine: {{kind: attached, urls: ["http://127.0.0.1:{port}"]}}
prices: {{currency: EUR, gpu_hour: {{main: 2.50}}}}
tenants:
  small:
    tenant: {{guaranteed: 1_gpu, elastic_cap: 1_gpu, hard_cap: 3_gpu}}
    queue: {{max_wait: 1h}}
timeouts: {{stall: 1h}}
"""


def test_a_grant_lets_waiting_requests_run_up_to_the_hard_cap(tmp_path: Path) -> None:
    with (
        engine("--chunks", "2", "--interval-ms", "3600000") as port,  # an answer goes on until its client leaves
        running(tmp_path, CONFIG.format(port=port)) as product,
        ExitStack() as clients,
    ):
        asked = [clients.enter_context(opened(product, "small")) for _ in range(6)]
        until(product, "small", running=1, waiting=5)

        product.cli("grant", "small", "--gpus", "4", "--for", "1h", code=2)  # more than its hard_cap
        product.cli("grant", "small", "--gpus", "3", "--for", "1h")
        until(product, "small", running=3, waiting=3)
        assert status(product, "small")["granted_until_ns"] is not None

        product.cli("grant", "small", "--end")
        assert status(product, "small")["granted_until_ns"] is None
        for each in asked[:3]:
            each.close()
        until(product, "small", running=1, waiting=2)
        clients.close()
        until(product, "small", running=0, waiting=0)
        held = [record for record in product.records() if "elastic_cap" in record["waits"]]
        assert len(held) >= 3  # those that waited when the grant came
        story = product.cli("explain", held[0]["request_id"])
        assert "elastic_cap" in str(story)
