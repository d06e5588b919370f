"""A child program that behaves as its first argument says. It speaks `engines.child`'s protocol, more or less."""

import http.server
import json
import os
import signal
import sys
import threading
import time

SERVING = {"well", "hangs", "refuses", "stubborn", "noisy", "environment"}


class Engine(http.server.BaseHTTPRequestHandler):
    mode = ""

    def do_GET(self) -> None:
        if self.mode == "hangs":
            time.sleep(3600)
        self._answer(200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(500 if self.mode == "refuses" else 200)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody reads it."""

    def _answer(self, status: int) -> None:
        body = b'{"ok": true}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(mode: str) -> None:
    spec = json.loads(sys.stdin.readline())
    match mode:
        case "exits":
            say("no GPU was found", to=2)
            sys.exit(3)
        case "errs":
            say('{"error": "the weights are for another engine"}')
            sys.exit(1)
        case "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "closes":
            os.close(1)
        case "garbage" | "endless" | "nowhere":
            say({"garbage": "Loading...", "endless": "x" * 1_000_000, "nowhere": "{}"}[mode])
        case "environment":
            say(json.dumps(dict(os.environ)), to=2)
        case "noisy":
            say("\n".join(["noise " * 20] * 5000), to=2)
    if mode in SERVING:
        _serve(mode, spec)
    if mode in {"mute", "closes", "stubborn"}:
        time.sleep(3600)
    sys.stdin.read()


def say(line: str, to: int = 1) -> None:
    data = line.encode() + b"\n"
    while data:
        data = data[os.write(to, data) :]


def _serve(mode: str, spec: dict[str, object]) -> None:
    Engine.mode = mode
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say(f"serving {spec['alias']}", to=2)
    say(json.dumps({"host": "127.0.0.1", "port": server.server_port}))


main(sys.argv[1])
