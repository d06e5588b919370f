"""A caller of the admin API, which looks at each answer for what must not be in it (`tests.leaks`)."""

from typing import Any

import httpx2
from starlette import testclient

from tests.leaks import none_in


class TestClient(testclient.TestClient):
    """Starlette's; a key is in the answer that made it, a prompt where its tenant asks for it, and nowhere else."""

    __test__ = False

    def send(self, request: httpx2.Request, **more: Any) -> httpx2.Response:
        response = super().send(request, **more)
        path = request.url.path
        makes_key = request.method == "POST" and "/keys" in path
        shows_prompt = "/prompts/" in path
        if response.is_error or not (makes_key or shows_prompt):
            none_in(response.content, f"the answer to {request.method} {path}")
        return response
