"""A budget holds over `kill -9`: what was spent is known again before anything is served."""

import json
import signal
import urllib.error
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.product import Product, running, wait_for_a_month
from tests.acceptance.test_durability import CONFIG, engine

SPENDS = "support: {{tenant: {{guaranteed: 2_gpu}}, budget: {{month: 1}}}}"


def ask(product: Product) -> None:
    product.post("/v1/chat/completions", {"model": "mock", "messages": [{"role": "user", "content": "hi"}]}, "support")


def budget(product: Product) -> dict[str, Any]:
    tenants = product.get("/admin/v1/status")["tenants"]
    found: dict[str, Any] = next(tenant["budget"] for tenant in tenants if tenant["name"] == "support")
    return found


def refusal(product: Product) -> tuple[int, str | None, str]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(product)
    error = caught.value
    return error.code, error.headers["x-should-retry"], json.loads(error.read())["error"]["code"]


def test_what_was_spent_is_known_after_a_kill(tmp_path: Path) -> None:
    wait_for_a_month()
    # given a budget, and GPUs so dear that a request costs something that can be seen
    dear = CONFIG.replace("main: 1}", "main: 1000}").replace("support: {{tenant: {{guaranteed: 2_gpu}}}}", SPENDS)
    with engine() as port, running(tmp_path, dear.format(port=port)) as product:
        assert (budget(product)["month_micro"], budget(product)["spent_micro"]) == (1_000_000, 0)
        ask(product)
        spent = budget(product)["spent_micro"]
        assert spent > 0
        # when the product is killed, and started again with a budget of less than that
        product.interrupt(signal.SIGKILL)
        product.wait()
        product.config.write_text(product.config.read_text().replace("month: 1}", "month: 0.000001}"))
        product.start()
        # then it is spent still, and nothing more is served
        assert refusal(product) == (429, "false", "insufficient_quota")
        assert budget(product)["spent_micro"] == spent
