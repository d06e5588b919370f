"""The data plane beside a plain proxy, on one core each, in the same run.

    python -m benchmarks.bench_gateway [--quick] [--rounds 5] [--seconds 4]

Measured are this product with everything on (keys, limits, fair queue, usage record), the same with the compiled core
where `make compile` has made one, a bare uvicorn + aiohttp proxy (`bare_proxy.py`) and, where it is installed, nginx.
They take turns in short runs, so that whatever else happens on the machine happens to all of them; figures are medians,
ratios are taken within a round. Afterwards every answered request must have its record in the usage table. Without
--quick the figures go into docs/results/gateway.md.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
from benchmarks import gateway_report as report
from benchmarks import rig
from benchmarks.rig import Load, RigError, Sample

CONFIG = """
listen: {{gateway: "127.0.0.1:0", control: "127.0.0.1:0"}}
pools: {{main: {{gpus: 8_gpu}}}}
models:
  mock:
    version: "1"
    gpu: 4_gpu
    slots: 1024
    context: 8Ki
    engine: {{kind: attached, urls: ["http://127.0.0.1:{engine}"]}}
  narrow:
    version: "1"
    gpu: 4_gpu
    slots: 16
    context: 8Ki
    engine: {{kind: attached, urls: ["http://127.0.0.1:{narrow}"]}}
prices: {{currency: EUR, gpu_hour: {{main: 2.50}}}}
tenants:
  left: {tenant}
  right: {tenant}
"""
TENANT = "{tenant: {guaranteed: 4_gpu}, limits: {queue_length: 10000, requests: 10M/min, tokens: 10000M/min}}"
NGINX_CONF = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder};
  scgi_temp_path {folder};
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 1024; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    proxy_http_version 1.1; proxy_buffering off;
    location / {{ proxy_pass http://engine; proxy_set_header Connection ""; }}
  }}
}}
"""
PATH = "/v1/chat/completions"
LIMIT_HEADERS = ["x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens"]
PRODUCT, COMPILED, BARE, NGINX = "commonpool", "commonpool, core compiled", "uvicorn + aiohttp", "nginx"
COMPILED_AT = rig.HERE.parent / "build" / "compiled"
STORED_S = 60.0

Samples = dict[tuple[str, str], list[Sample]]


class Case(msgspec.Struct, frozen=True):
    """One kind of load. `interval_ms` is between two chunks of the engine's streams."""

    name: str
    load: Load
    stream: bool = False
    interval_ms: float = 0.0
    model: str = "mock"
    product_only: bool = False


CASES = (
    Case("1 KB answers, 64 connections", Load(64)),
    Case("1 KB answers, 8 connections", Load(8)),
    Case("1 KB answers, about 1,000 a second", Load(64, think_ms=64)),
    Case(
        "1 KB answers, 64 connections for 16 slots: most wait in the queue", Load(64), model="narrow", product_only=True
    ),
    Case("20-chunk streams as fast as they go, 64 connections", Load(64), stream=True),
    Case("20-chunk streams as fast as they go, 512 connections", Load(512), stream=True),
    Case("20-chunk streams, a chunk every 25 ms, 256 connections", Load(256), stream=True, interval_ms=25.0),
)


class System(msgspec.Struct, frozen=True):
    """A proxy that runs. Each of `keys` is a client's; `control` is the product's control plane."""

    name: str
    pid: int
    url: str
    keys: tuple[str, ...] = ("none",)
    control: str = ""


class Ready(msgspec.Struct, frozen=True):
    """What is used of the line that `commonpool up --json` prints."""

    gateway: str
    control: str
    keys: tuple[dict[str, str], ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round of each, to see that it works")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="of each run")
    args = parser.parse_args()
    if min(args.rounds, args.seconds) < 1:
        parser.error(f"--rounds {args.rounds} and --seconds {args.seconds} must be 1 or more")
    rounds, seconds = (1, 1) if args.quick else (args.rounds, args.seconds)
    samples: Samples = {}
    try:
        rig.settle()
        kept = [bench(each, rounds, seconds, samples) for each in sorted({case.interval_ms for case in CASES})]
        text = report.figures(
            samples, kept, products=(PRODUCT, COMPILED), baseline=BARE, rounds=rounds, seconds=seconds
        )
        print(text)
        if not args.quick:
            report.write(text)
    except (RigError, KeyboardInterrupt) as error:
        sys.exit(f"bench-gateway: {str(error) or 'stopped'}")


def bench(interval_ms: float, rounds: int, seconds: int, samples: Samples) -> str:
    """Run the cases with such an engine, adding to `samples`; what the usage table says afterwards."""
    answered: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gateway-")))
        engine = stack.enter_context(rig.engine(interval_ms))
        products = [product(stack, folder, engine)]
        if (COMPILED_AT / ".made").exists():
            products.append(product(stack, folder, engine, COMPILED, COMPILED_AT))
        systems = [*products, bare(stack, engine), *nginx(stack, folder, engine)]
        for case in CASES:
            if case.interval_ms != interval_ms:
                continue
            print(f"measuring: {case.name}", file=sys.stderr)
            turns = products if case.product_only else systems
            for number, system in itertools.product(range(-1, rounds), turns):  # round -1 warms up
                requests = prepared(folder, case, system)
                sample = rig.measure(system.pid, system.url, case.load, seconds if number >= 0 else 1, requests)
                if number >= 0:
                    samples.setdefault((case.name, system.name), []).append(sample)
                answered[system.name] += sample.requests
                cut[system.name] += case.load.connections
        return "; ".join(checked(each, answered[each.name], cut[each.name]) for each in products)


def prepared(folder: Path, case: Case, system: System) -> list[Path]:
    """The requests of a case as files, one for each client."""
    prompt = [{"role": "user", "content": "lorem ipsum " * 75}]
    body: dict[str, object] = {"model": case.model, "messages": prompt, "max_tokens": 20}
    if case.stream:
        body["stream"] = True
    files = [folder / f"request-{number}" for number in range(len(system.keys))]
    for file, key in zip(files, system.keys, strict=True):
        file.write_bytes(rig.request(PATH, body, key))
    return files


def checked(system: System, answered: int, cut: int) -> str:
    """Every answered request has its record, and nothing else has but the last one of each of wrk's connections.

    The product is asked the way anybody would ask it. The records of the last moments are given time to be stored.
    """
    command = [sys.executable, "-m", "commonpool", "usage", "--json", "--by", "outcome", "--since", "1d"]
    deadline = time.monotonic() + STORED_S
    counts: dict[str, int] = {}
    while sum(counts.values()) < answered and time.monotonic() < deadline:
        done = subprocess.run([*command, "--control", system.control], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RigError(f"the usage table cannot be had: {done.stderr.strip()}")
        counts = {row["group"][0]: row["requests"] for row in json.loads(done.stdout)["rows"]}
    completed, total = counts.get("completed", 0), sum(counts.values())
    if not answered <= completed <= total <= answered + cut + 1:  # one was asked by `guarded`
        raise RigError(
            f"wrk got {answered} answers and may have cut {cut}, but the usage table has {completed} completed requests"
            f" of {total}: the product does not do what it is measured for."
        )
    return (
        f"{answered:,} answers, {completed:,} records of completed requests and {total - completed:,} of requests that"
        " wrk cut off at the end of a run"
    )


# -- the systems -------------------------------------------------------------------------------------------------------


def product(
    stack: contextlib.ExitStack, folder: Path, engine: int, name: str = PRODUCT, at: Path | None = None
) -> System:
    """The product, of the sources or of what lies `at`."""
    narrow = stack.enter_context(rig.engine(0.0))
    home = folder / name
    home.mkdir()
    file = home / "commonpool.yaml"
    file.write_text(CONFIG.format(engine=engine, narrow=narrow, tenant=TENANT))
    command = [sys.executable, "-m", "commonpool", "up", str(file), "--json"]
    process = stack.enter_context(
        rig.running(command, measured=True, environment={"PYTHONPATH": str(at)} if at else {})
    )
    ready = msgspec.json.decode(process.line('{"gateway"'), type=Ready)
    system = System(name, process.pid, ready.gateway, tuple(key["key"] for key in ready.keys), ready.control)
    guarded(system)
    return system


def guarded(system: System) -> None:
    """Keys and limits are really on: without a key nothing is answered, and an answer tells what is left of both."""
    host = system.url.partition("//")[2]
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello"}]})
    for key, status, wanted in (("none", 401, []), (system.keys[0], 200, LIMIT_HEADERS)):
        with contextlib.closing(http.client.HTTPConnection(host, timeout=rig.START_S)) as connection:
            connection.request("POST", PATH, body, {"authorization": f"Bearer {key}"})
            answer = connection.getresponse()
            missing = [name for name in wanted if answer.getheader(name) is None]
        if answer.status != status or missing:
            raise RigError(
                f"with the key {key[:6]!r}… the product answers {answer.status} where {status} is due, without the"
                f" headers {missing}: it is not set up as it should be measured."
            )


def bare(stack: contextlib.ExitStack, engine: int) -> System:
    port = rig.free_port()
    command = [
        sys.executable,
        str(rig.HERE / "bare_proxy.py"),
        "--port",
        str(port),
        "--engine",
        f"http://127.0.0.1:{engine}",
    ]
    process = stack.enter_context(rig.running(command, measured=True))
    process.listens(port)
    return System(BARE, process.pid, f"http://127.0.0.1:{port}")


def nginx(stack: contextlib.ExitStack, folder: Path, engine: int) -> list[System]:
    """The pace of a mature proxy in C, where it is installed."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        return []
    port = rig.free_port()
    file = folder / "nginx.conf"
    file.write_text(NGINX_CONF.format(folder=folder, engine=engine, port=port))
    process = stack.enter_context(
        rig.running([program, "-e", "stderr", "-p", str(folder), "-c", str(file)], measured=True)
    )
    process.listens(port)
    return [System(NGINX, process.pid, f"http://127.0.0.1:{port}")]


if __name__ == "__main__":
    main()
