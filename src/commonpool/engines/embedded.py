"""The embedded engine: llama.cpp's own HTTP server in a child process (`python -m commonpool.engines.embedded`).

It listens on a free port and answers only to the key that its parent made for it. One server answers chat, completions
and embeddings.
"""

import importlib
import sys
import threading
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from commonpool.engines import child, confinement

# Each kept-alive connection holds one of the server's threads: one per slot, and some for health checks and counting.
SPARE_THREADS: Final = 6
# The engine can let go of a prompt between two batches only. Sixteen tokens take less than 200 ms on one slow thread,
# and reading a prompt in larger batches is hardly faster on a CPU.
BATCH_TOKENS: Final = 16
QUIET: Final = 2  # errors and warnings; the requests are in our own records
NO_PINGS: Final = -1


class Spec(msgspec.Struct, frozen=True):
    """What to serve: `slots` sequences at once, each of up to `context_tokens`, on `threads` CPU threads.

    `alias` is the model's name in answers. `host` is the address of this machine that it listens on.
    """

    file: str
    alias: str
    slots: int
    context_tokens: int
    threads: int
    api_key: str
    host: str = "127.0.0.1"

    def __repr__(self) -> str:
        """Without the key, so that it cannot get into a log."""
        return f"Spec({self.alias} of {self.file})"


def main() -> None:
    """Serve until stdin closes; exit with 1 when the engine cannot start."""
    confinement.close_inherited()
    child.bind_life_to_parent()
    confinement.confine()
    confinement.hide()  # its key is in its memory
    stdout = child.take_stdout()
    spec = msgspec.json.decode(child.read_line(), type=Spec)
    child.exit_when_stdin_closes()
    try:
        server = _serve(spec)
        address = urlsplit(server.listening_address)
        report = child.Report(host=address.hostname or "127.0.0.1", port=address.port or 0)
    except ModuleNotFoundError:
        report = child.Report(error="the embedded engine is not installed; run `pip install 'commonpool[embedded]'`")
    except Exception as error:  # noqa: BLE001 - whatever native code throws becomes the one sentence
        report = child.Report(error=f"llama.cpp cannot serve {spec.file}: {error}")
    child.tell(report, stdout)
    if report.error:
        sys.exit(1)
    threading.Event().wait()  # the watcher ends the process


def _serve(spec: Spec) -> Any:
    xllamacpp = importlib.import_module("xllamacpp")  # optional, and only this child needs it
    params = xllamacpp.CommonParams()
    params.model.path = spec.file
    params.model_alias = {spec.alias}
    params.hostnames = [spec.host]
    params.port = 0
    params.api_keys = [spec.api_key]
    params.n_threads_http = spec.slots + SPARE_THREADS
    # The shape is what the configuration says; nothing is fitted to the memory that happens to be free.
    params.fit_params = False
    params.n_parallel = spec.slots
    params.n_ctx = spec.context_tokens * spec.slots
    params.n_batch = params.n_ubatch = BATCH_TOKENS + spec.slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = spec.threads
    # Pooling over the last token works for inputs longer than a batch; the mean does not.
    params.embedding = True
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_LAST
    # What a slot holds is used where a request says so (gateway.caches). Nothing else of a prompt is kept: what is kept
    # beside the slots has no tenant in its key.
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.endpoint_slots = params.endpoint_metrics = True
    params.ui = False
    params.warmup = False  # a replica answers a request before it is called ready
    params.sse_ping_interval = NO_PINGS
    params.verbosity = QUIET
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
