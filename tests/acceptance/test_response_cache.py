"""A tenant that wants a response cache: the same question costs it no GPU, and nobody else has anything of it."""

import json
import urllib.request
from pathlib import Path

from tests.acceptance.product import Product, running
from tests.acceptance.test_durability import engine
from tests.leaks import MARK

CONFIG = """
pools: {{main: {{gpus: 4_gpu}}}}
models:
  mock:
    version: "{version}"
    gpu: 4_gpu
    slots: 8
    context: 4096
    engine: {{kind: attached, urls: ["http://127.0.0.1:{port}"]}}
prices: {{currency: EUR, gpu_hour: {{main: 1}}, meters: {{million_tokens_in: 8, million_tokens_cached: 2}}}}
tenants:
  support: {{tenant: {{guaranteed: 2_gpu}}, response_cache: 10m}}
  research: {{tenant: {{guaranteed: 2_gpu}}}}
"""


def ask(product: Product, tenant: str, *, temperature: float = 0, stream: bool = False) -> tuple[bool, bytes]:
    """Whether it was answered with what is kept, and the answer."""
    body = {
        "model": "mock",
        "messages": [{"role": "user", "content": MARK}],
        "temperature": temperature,
        "stream": stream,
    }
    request = urllib.request.Request(
        product.gateway + "/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {product.keys[tenant]}"},
    )
    with urllib.request.urlopen(request, timeout=180) as answer:
        return answer.headers["x-commonpool-cache"] == "hit", answer.read()


def test_a_tenant_is_answered_again_what_it_was_answered(tmp_path: Path) -> None:
    with engine() as port, running(tmp_path, CONFIG.format(port=port, version="1")) as product:
        first, again = ask(product, "support"), ask(product, "support")
        assert (first[0], again) == (False, (True, first[1]))
        streamed, again = ask(product, "support", stream=True), ask(product, "support", stream=True)
        assert (streamed[0], again) == (False, (True, streamed[1]))
        assert not ask(product, "support", temperature=0.5)[0]
        assert [ask(product, "research")[0] for _ in range(2)] == [False, False]

        ours = [record for record in product.records() if record["tenant"] == "support"]
        assert [(record["replica"] != "", record["milli_gpu_ns"] > 0) for record in ours] == [
            (True, True),
            (False, False),
            (True, True),
            (False, False),
            (True, True),
        ]
        for asked, recalled in ((ours[0], ours[1]), (ours[2], ours[3])):
            assert recalled["outcome"] == "completed"
            assert recalled["tokens_cached"] == recalled["tokens_in"] == asked["tokens_in"]
            assert recalled["tokens_out"] == asked["tokens_out"]

        # Another version of the model: nothing of the last is given.
        product.config.write_text(product.listen + CONFIG.format(port=port, version="2"))
        product.cli("apply", str(product.config))
        assert [ask(product, "support")[0] for _ in range(2)] == [False, True]
