#!/usr/bin/env python3
"""Starts the scripted upstream and the gateway in front of it, runs one command, and stops both.

    stack.py COMMAND [ARGUMENT]...

The command finds `GATEWAY_URL`, `ADMIN_URL` and `UPSTREAM_URL` in its environment. Afterwards the gateway's own
output is read: a key or a model's words in it is a failure. The binary is `$PORTCULLIS`, or the release build.
"""

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
UPSTREAM_KEY = "sk-upstream-0f1e2d3c4b5a"
CLIENT_KEY = "sk-client-a5b4c3d2e1f0"
# What must never be seen in a log: both keys, and words that only the model writes.
SECRETS = [UPSTREAM_KEY, CLIENT_KEY, "Let me know if anything is missing", "that is all I can tell", "Perhaps {"]

# Answers of these kinds count against a backend's health. Each use of them has a backend of its own, so that a
# circuit which opens, rightly, on one test is no concern of the next.
FAILING = ["http_400", "http_401", "http_429", "http_500", "http_503", "error_in_200", "html_in_200", "cut", "error_in_stream", "empty", "blank", "endless"]
USES = ["create", "parse", "stream", "other"]
# The orders that the demo backend takes, right and wrong.
ORDERS = ["order_right", "order_allergen", "order_invented", "order_forgotten"]
# A policy that asks and rejects in the ways that are the default: a refusal, and an error.
ASKING = """version: 1
match: by_name
schema: order.schema.json
data: {menu: {file: menu.json, key: sku}}
gates:
  - name: changes-on-menu
    each: "$.items[*]"
    rule: this.additions.all(a, a in data.menu[this.sku].additions)
    on_violation: clarify
    say: "We have no {{ this.additions | join(', ') }}. What would you like instead?"
  - name: no-peanuts
    rule: "!(output.items.exists(i, i.sku == 'PRAWN_NOODLES') && 'peanut' in output.constraints.allergens)"
"""


def binary() -> str:
    found = os.environ.get("PORTCULLIS") or str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "portcullis")
    found = str(Path(found).resolve())
    if not os.access(found, os.X_OK):
        sys.exit(f"no gateway at `{found}`: run `cargo build --release`, or set PORTCULLIS")
    return found


class Process:
    """A child whose standard output announces where it listens, one `NAME on URL` line for each of `names`."""

    def __init__(self, command: list[str], names: list[str], log: Path, wait_s: float = 30):
        self.log = log
        self.lines: queue.Queue[str | None] = queue.Queue()
        environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY") and not k.startswith("PORTCULLIS_")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log.open("wb"), env=environment, text=True, errors="replace"
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.seen: list[str] = []
        self.urls: dict[str, str] = {}
        try:
            while missing := [name for name in names if name not in self.urls]:
                line = self.lines.get(timeout=wait_s)
                if line is None:
                    raise RuntimeError(f"`{command[0]}` ended before it said `{missing[0]} on ...`")
                self.seen.append(line)
                if match := re.search(r"(\w+) on (http://[0-9.]+:[0-9]+)", line):
                    self.urls[match[1]] = match[2]
        except (queue.Empty, RuntimeError) as error:
            self.stop()
            sys.exit(f"{error or 'not ready in time'}\n{self.output()[-4000:]}")

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def output(self) -> str:
        """Everything it wrote so far, both streams."""
        while not self.lines.empty():
            line = self.lines.get()
            if line is not None:
                self.seen.append(line)
        return "".join(self.seen) + self.log.read_text(errors="replace")

    def stop(self, wait_s: float = 10) -> int | None:
        """Ends it, politely first. Its exit code, or None if it had to be killed."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        self.reader.join(2)
        return code


def config(upstream: str) -> str:
    """The gateway's configuration for these tests."""
    lines = [
        "version: 1",
        "listen: {address: 127.0.0.1:0}",
        "admin: {address: 127.0.0.1:0}",
        "auth: {mode: none}",
        "telemetry: {log: info}",
        "drain: 2s",
        "policies: policies",
        "backends:",
        "  demo: {kind: demo}",
        f'  up: {{kind: openai, base_url: "{upstream}/v1", api_key: "{UPSTREAM_KEY}"}}',
    ]
    names = [(behaviour, use) for behaviour in FAILING for use in USES]
    lines += [f'  {b}-{use}: {{kind: openai, base_url: "{upstream}/v1", api_key: "{UPSTREAM_KEY}"}}' for b, use in names]
    lines.append("models:")
    lines += [f'  "{b}--{use}": {{targets: [{{backend: {b}-{use}}}]}}' for b, use in names]
    lines += [f'  "demo/{name}": {{targets: [{{backend: demo, model: demo/{name}}}]}}' for name in ORDERS]
    lines.append('  "*": {targets: [{backend: up}]}')
    return "\n".join(lines) + "\n"


def start_gateway(text: str, folder: Path) -> Process:
    shutil.copytree(ROOT / "policies" / "orders", folder / "policies" / "orders")
    asking = folder / "policies" / "asking"
    asking.mkdir()
    (asking / "policy.yaml").write_text(ASKING)
    for name in ("order.schema.json", "menu.json"):
        shutil.copy(ROOT / "policies" / "orders" / name, asking)
    path = folder / "portcullis.yaml"
    path.write_text(text)
    return Process([binary(), "serve", "--config", str(path)], ["listening", "admin"], folder / "gateway.log")


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = Path(tempfile.mkdtemp(prefix="portcullis-sdk-"))
    upstream = gateway = None
    try:
        upstream = Process([sys.executable, str(HERE / "upstream.py")], ["upstream"], folder / "upstream.log")
        gateway = start_gateway(config(upstream.urls["upstream"]), folder)
        environment = os.environ | {
            "GATEWAY_URL": gateway.urls["listening"],
            "ADMIN_URL": gateway.urls["admin"],
            "UPSTREAM_URL": upstream.urls["upstream"],
            "UPSTREAM_KEY": UPSTREAM_KEY,
            "CLIENT_KEY": CLIENT_KEY,
        }
        code = subprocess.run(sys.argv[1:], env=environment, timeout=600).returncode
        if gateway.process.poll() is not None:
            print("the gateway ended while it was tested", file=sys.stderr)
            code = code or 1
        ended = gateway.stop()
        if ended != 0:
            print(f"the gateway did not drain and exit with 0 on SIGTERM: {ended}", file=sys.stderr)
            code = code or 1
        leaked = [secret for secret in SECRETS if secret in gateway.output()]
        if leaked:
            print(f"the gateway's log holds what it must not: {leaked}", file=sys.stderr)
            code = code or 1
        if code:
            print(f"--- the gateway's output, its end\n{gateway.output()[-4000:]}", file=sys.stderr)
            print(f"--- the upstream's errors\n{upstream.output()[-2000:]}", file=sys.stderr)
        return code
    finally:
        for process in (gateway, upstream):
            if process:
                process.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
