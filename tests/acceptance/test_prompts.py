"""A tenant keeps its prompts: it alone reads them, nothing of them lies about, and the master key changes beneath."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.acceptance.product import Product, command, running
from tests.acceptance.test_durability import engine
from tests.leaks import MARK, none_in

CONFIG = """
pools: {{main: {{gpus: 4_gpu}}}}
models:
  mock:
    version: "1"
    gpu: 4_gpu
    slots: 8
    context: 4096
    engine: {{kind: attached, urls: ["http://127.0.0.1:{port}"]}}
prices: {{currency: EUR, gpu_hour: {{main: 1}}}}
tenants:
  support: {{tenant: {{guaranteed: 2_gpu}}}}
  research: {{tenant: {{guaranteed: 2_gpu}}}}
"""


def as_admin_of(product: Product, tenant: str) -> str:
    made = product.cli("keys", "create", "--scope", "admin", "--tenant", tenant, "--role", "tenant-admin")
    key: str = made["key"]
    return key


def prompts(product: Product, key: str | None, *arguments: str) -> tuple[int, Any]:
    """The command with somebody's key: its exit code, and its answer or what it said."""
    done = subprocess.run(
        [*command("prompts", *arguments), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "COMMONPOOL_CONTROL": product.control} | ({} if key is None else {TOKEN: key}),
        check=False,
        timeout=180,
    )
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else done.stderr


TOKEN = "COMMONPOOL_ADMIN_TOKEN"


def shown(product: Product, key: str | None, name: str, tenant: str = "support") -> tuple[int, str]:
    """The status of what the API answers to somebody who wants to see one, and what it was asked."""
    url = f"{product.control}/admin/v1/tenants/{tenant}/prompts/{name}"
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=180) as answer:
            return answer.status, json.loads(answer.read())["asked"]
    except urllib.error.HTTPError as error:
        with error:
            none_in(error.read())
            return error.code, ""


def ask(product: Product, tenant: str, *, stream: bool = False) -> str:
    """The id of a request that holds the mark."""
    body = {"model": "mock", "messages": [{"role": "user", "content": MARK}], "stream": stream}
    request = urllib.request.Request(
        product.gateway + "/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {product.keys[tenant]}"},
    )
    with urllib.request.urlopen(request, timeout=180) as answer:
        answer.read()
        found: str = answer.headers["x-request-id"]
    return found


def lies_about(folder: Path) -> list[str]:
    """The files below a folder that hold the mark."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return [str(file) for file in files if MARK.encode() in file.read_bytes()]


def write_keys(product: Product, **keys: str) -> None:
    """The configuration with the master keys in these files."""
    places = ", ".join(f"{name}: file:{place}" for name, place in keys.items())
    lines = [line for line in product.config.read_text().splitlines() if not line.startswith("secrets:")]
    product.config.write_text("\n".join([*lines, f"secrets: {{{places}}}\n"] if places else lines))


def test_a_tenant_keeps_its_prompts(tmp_path: Path) -> None:
    for name, digit in (("one", "1"), ("two", "2"), ("three", "3")):
        (tmp_path / name).write_text(digit * 64)
    config = CONFIG + "secrets: {{master_key: file:one}}\n"
    with engine() as port, running(tmp_path, config.format(port=port)) as product:
        ours, theirs = (as_admin_of(product, tenant) for tenant in ("support", "research"))
        ask(product, "support")
        assert prompts(product, ours, "on", "support", "--keep", "7d")[0] == 0
        first = ask(product, "support")
        streamed = ask(product, "support", stream=True)
        ask(product, "research")

        # Its people read it.
        _, listed = prompts(product, ours, "list", "support")
        assert {entry["request_id"] for entry in listed["entries"]} == {first, streamed}
        code, entry = prompts(product, ours, "show", "support", streamed)
        assert (code, MARK in entry["asked"]) == (0, True)
        assert json.loads(entry["answered"])["choices"][0]["message"]["content"]
        assert MARK in shown(product, ours, first)[1]
        # Neither another tenant's nor whoever runs the product.
        code, said = prompts(product, None, "show", "support", first)
        assert (code, MARK in said) == (5, False)
        assert shown(product, None, first)[0] == 403
        assert shown(product, theirs, first)[0] == shown(product, theirs, first, "research")[0] == 404
        product.stop()
        assert lies_about(tmp_path) == []

        # Another master key, with both at hand while it changes.
        write_keys(product, master_key="three")
        done = subprocess.run(command("up", str(product.config)), capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "and the data key of tenant support is wrapped by" in done.stderr
        write_keys(product, master_key="two", previous_master_key="one")
        product.start()
        assert MARK in shown(product, ours, first)[1]
        assert product.cli("secrets", "rotate") == {"count": 1}
        product.stop()
        write_keys(product, master_key="two")
        product.start()
        assert MARK in shown(product, ours, first)[1]

        # What it deletes is gone.
        assert prompts(product, ours, "delete", "support", first) == (0, {"count": 1})
        assert shown(product, ours, first)[0] == 404
        assert prompts(product, ours, "off", "support")[0] == 0
        ask(product, "support")
        assert prompts(product, ours, "delete", "support", "--all") == (0, {"count": 1})


def test_without_its_key_the_product_says_so_and_does_not_start(tmp_path: Path) -> None:
    config = tmp_path / "commonpool.yaml"
    config.write_text(CONFIG.format(port=1) + "secrets: {master_key: file:none}\n")
    done = subprocess.run(command("up", str(config)), capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"secrets.master_key is file:{tmp_path}/none, and " in done.stderr
    assert "cannot be read" in done.stderr
