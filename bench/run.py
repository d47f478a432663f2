#!/usr/bin/env python3
"""Side-by-side benchmark of LLM gateways against one mock upstream, on one machine.

Each round starts one gateway at a time, drives every cell through it, and stops it; rounds repeat
and medians are kept, so a burst of other work on the machine spoils one round of one row and not
the comparison. By default the gateway has CPU 0 to itself, and the mock and the load generator
share CPU 1; everything runs in a network namespace with nothing but loopback in it.

    bench/run.py                                  every known gateway, 3 rounds
    bench/run.py --peers nginx,portcullis         some of them
    bench/run.py --add ours=http://127.0.0.1:8080 --pid ours=1234   one that is running already

`--add` implies `--shared-network`, as a running gateway is in no namespace of ours. The latency
cells are the only ones with an open-loop generator: they hold a rate, count a late start as
latency, and so see the stalls that a closed loop hides.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from peers import KEY, PEERS, SCHEMA, Peer, fill

HERE = Path(__file__).resolve().parent
MOCK_PORT = 9100
MIN_REQUESTS = 5  # a cell that saw fewer says nothing
TICKS = os.sysconf("SC_CLK_TCK")
LUA = """
local f = io.open(os.getenv("BENCH_BODY"), "rb"); wrk.body = f:read("*a"); f:close()
wrk.method = "POST"
for line in io.lines(os.getenv("BENCH_HEADERS")) do
  local k, v = line:match("^([^:]+): (.*)$"); wrk.headers[k] = v
end
function done(summary, latency, requests)
  local e = summary.errors
  io.stderr:write(string.format('BENCH{"requests":%d,"us":%d,"bytes":%d,"bad":%d,"p50":%d,"p95":%d,"p99":%d,"max":%d}\\n',
    summary.requests, summary.duration, summary.bytes, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(95), latency:percentile(99), latency.max))
end
"""

@dataclass
class Cell:
    """One kind of work. `connections` is the concurrency; a `rate` makes it open-loop."""

    name: str
    connections: int
    marker: str = ""
    stream: bool = False
    schema: bool = False
    filler: int = 0
    rate: int = 0
    images: int = 0  # of 1 MiB each, as base64 in the message

    def body(self, model: str) -> bytes:
        question = "Review the quarter and answer in JSON. " + self.marker + "x" * self.filler
        content: str | list = question
        if self.images:
            picture = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUg+/" * (1024 * 1024 // 24)
            content = [{"type": "text", "text": question}]
            content += [{"type": "image_url", "image_url": {"url": picture}}] * self.images
        request = {
            "model": model,
            "messages": [
                {"role": "system", "content": "You are a careful financial analyst. Answer with JSON only."},
                {"role": "user", "content": content},
            ],
            "temperature": 0.2,
        }
        if self.stream:
            request["stream"] = True
        if self.schema:
            request["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "review", "strict": True, "schema": SCHEMA},
            }
        return json.dumps(request).encode()


STREAM_EVENTS = 63  # the mock's role event, 60 content events, stop and [DONE]
CELLS = [
    Cell("c1", 1),
    Cell("c16", 16),
    Cell("c64", 64),
    Cell("schema-c16", 16, schema=True),
    Cell("sse-c4", 4, marker="[[mock chunks=60 interval_ms=2]]", stream=True),
    Cell("sse-c32", 32, marker="[[mock chunks=60 interval_ms=2]]", stream=True),
    Cell("sse-burst-c16", 16, marker="[[mock chunks=60]]", stream=True),
    Cell("body1m-c4", 4, filler=1_000_000),
    Cell("images20m-c1", 1, images=20),
    Cell("open-100", 16, marker="[[mock latency_ms=5]]", rate=100),
    Cell("open-1000", 64, marker="[[mock latency_ms=5]]", rate=1000),
    Cell("open-sse", 64, marker="[[mock latency_ms=5 chunks=60 interval_ms=2]]", stream=True, rate=20),
]


def tree(pid: int) -> list[int]:
    """The process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += children.get(one, [])
    return found


def cpu_seconds(pid: int | None) -> tuple[float, float]:
    """User and system CPU that the process tree has used, ended children included."""
    user = system = 0
    for one in tree(pid) if pid else []:
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        user += int(fields[11]) + int(fields[13])
        system += int(fields[12]) + int(fields[14])
    return user / TICKS, system / TICKS


def memory_mib(pid: int | None, key: str) -> float:
    """Sum over the tree of `VmRSS` (now) or `VmHWM` (peak since the last reset)."""
    total = 0
    for one in tree(pid) if pid else []:
        try:
            status = Path(f"/proc/{one}/status").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith(key + ":"))
    return total / 1024


def reset_peak(pid: int | None) -> None:
    for one in tree(pid) if pid else []:
        try:
            Path(f"/proc/{one}/clear_refs").write_text("5")
        except OSError:
            pass


def wait_port(port: int, seconds: float, process: subprocess.Popen | None = None) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process and process.poll() is not None:
            raise RuntimeError(f"exited with {process.returncode} before it listened")
        with socket.socket() as s:
            s.settimeout(1)
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port} after {seconds:.0f} s")


def pinned(cpu: str, command: list[str]) -> list[str]:
    return ["taskset", "-c", cpu, *command] if cpu else command


class Gateway:
    """One gateway, running: started here, or given by its base URL and pid."""

    def __init__(self, peer: Peer, options: argparse.Namespace):
        self.peer, self.process, self.pid = peer, None, None
        self.dir = Path(tempfile.mkdtemp(prefix=f"bench-{peer.name}-"))
        mock = f"127.0.0.1:{MOCK_PORT}"
        names = {"port": peer.port, "mock": mock, "dir": self.dir, "mock_host": "127.0.0.1", "mock_port": MOCK_PORT}
        self.headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        self.headers |= {k: fill(v, names) for k, v in peer.headers.items()}
        base = options.added.get(peer.name) or f"http://127.0.0.1:{peer.port if peer.command else MOCK_PORT}"
        self.url = base + peer.path
        if not peer.command:
            self.pid = options.pids.get(peer.name)
            return
        for name, text in peer.files.items():
            (self.dir / name).write_text(fill(text, names))
        env = {k: os.environ[k] for k in ("PATH", "HOME", "LANG") if k in os.environ}
        env |= {k: fill(v, names) for k, v in peer.env.items()}
        command = pinned(options.gateway_cpu, [fill(part, names) for part in peer.command])
        self.log = (self.dir / "log").open("wb")
        self.process = subprocess.Popen(
            command, env=env, cwd=self.dir, stdout=self.log, stderr=self.log, start_new_session=True
        )
        self.pid = self.process.pid
        try:
            self.wait_ready()
        except Exception:
            print((self.dir / "log").read_text(errors="replace")[-1500:], file=sys.stderr)
            self.stop()
            raise

    def wait_ready(self) -> None:
        until = time.monotonic() + self.peer.ready_s
        url_file = self.dir / "url"
        if self.peer.name.startswith("tensorzero"):
            while not url_file.exists() or not url_file.read_text():
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("did not start")
                time.sleep(0.05)
            port = url_file.read_text().split(":")[2].split("/")[0]
            self.url = f"http://127.0.0.1:{port}{self.peer.path}"
        else:
            wait_port(self.peer.port, self.peer.ready_s, self.process)
        error = None
        while time.monotonic() < until:
            error = self.check(CELLS[0])
            if not error:
                return
            time.sleep(0.2)
        raise RuntimeError(f"not ready: {error}")

    def check(self, cell: Cell) -> str | None:
        """One request of the cell: why its answer is wrong, or None."""
        request = urllib.request.Request(self.url, cell.body(self.peer.model), self.headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            return f"HTTP {error.code}: {error.read()[:200]!r}"
        except OSError as error:
            return str(error)
        if cell.stream:
            events = text.count("data:")
            return None if events >= 60 and "[DONE]" in text else f"{events} events"
        return None if "Quarterly revenue review" in text else f"unexpected answer: {text[:200]}"

    def stop(self) -> None:
        if self.process:
            try:
                os.killpg(self.process.pid, signal.SIGTERM)
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                pass
            except ProcessLookupError:
                pass
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def drive(gateway: Gateway, cell: Cell, seconds: float, options: argparse.Namespace) -> dict:
    """Runs the load generator once and returns what it saw, times in microseconds."""
    body, headers = gateway.dir / "request.json", gateway.dir / "headers.txt"
    body.write_bytes(cell.body(gateway.peer.model))
    headers.write_text("".join(f"{k}: {v}\n" for k, v in gateway.headers.items()))
    if cell.rate:
        command = [f"{options.tools}/open-loop", gateway.url, str(cell.rate), str(cell.connections), str(seconds), str(body), str(headers)]
        out = subprocess.run(pinned(options.load_cpu, command), capture_output=True, text=True, check=True,
                             timeout=seconds + 20, start_new_session=True)
        return json.loads(out.stdout)
    lua = gateway.dir / "post.lua"
    lua.write_text(LUA)
    env = os.environ | {"BENCH_BODY": str(body), "BENCH_HEADERS": str(headers)}
    command = ["wrk", "-t1", f"-c{cell.connections}", f"-d{seconds}s", "--timeout", "8s", "-s", str(lua), gateway.url]
    out = subprocess.run(pinned(options.load_cpu, command), capture_output=True, text=True, env=env,
                         timeout=seconds + 20, start_new_session=True)
    lines = [line for line in out.stderr.splitlines() if line.startswith("BENCH")]
    if not lines:
        raise RuntimeError(out.stdout + out.stderr)
    return json.loads(lines[0][5:])


def measure(gateway: Gateway, cell: Cell, mock_pid: int, options: argparse.Namespace) -> dict:
    reset_peak(gateway.pid)
    before, mock_before, start = cpu_seconds(gateway.pid), cpu_seconds(mock_pid), time.monotonic()
    seen = drive(gateway, cell, options.seconds, options)
    wall = time.monotonic() - start
    after, mock_after = cpu_seconds(gateway.pid), cpu_seconds(mock_pid)
    used, mock_used = sum(after) - sum(before), sum(mock_after) - sum(mock_before)
    requests = max(seen["requests"], 1)
    return seen | {
        "rps": seen["requests"] / (seen["us"] / 1e6),
        "cpu_us": used / requests * 1e6,
        "user_us": (after[0] - before[0]) / requests * 1e6,
        "mock_us": mock_used / requests * 1e6,
        "busy": used / wall,
        "peak_mib": memory_mib(gateway.pid, "VmHWM"),
    }


def one_peer(peer: Peer, mock_pid: int, options: argparse.Namespace) -> dict:
    """All the cells of one gateway, once."""
    started = time.monotonic()
    gateway = Gateway(peer, options)
    out: dict = {"start_s": time.monotonic() - started, "idle_mib": memory_mib(gateway.pid, "VmRSS"), "cells": {}}
    try:
        warm = next(c for c in CELLS if c.name == "c16")
        drive(gateway, warm, options.warm, options)
        fastest = 0.0
        for cell in options.cells:
            wrong = gateway.check(cell)
            if wrong:
                out["cells"][cell.name] = {"error": wrong}
                continue
            if fastest and cell.rate > fastest * 0.7:
                out["cells"][cell.name] = {"error": f"rate beyond 70% of its {fastest:.0f}/s"}
                continue
            out["cells"][cell.name] = seen = measure(gateway, cell, mock_pid, options)
            if cell.name in ("c16", "c64"):
                fastest = max(fastest, seen["rps"])
    finally:
        gateway.stop()
    return out


def summarise(rounds: dict[str, list[dict]], cells: list[Cell], reference: str, best: bool) -> str:
    """The tables, in Markdown: medians over rounds, ratios being medians of each round's ratio.

    `best` takes the least of each cost and the most of each throughput instead: what other work on
    the machine adds is never negative, so on a busy one that is the nearer to the truth.
    """
    lines = []

    def pick(key: str, found: list[float]) -> float:
        if not found:
            return 0.0
        return statistics.median(found) if not best else max(found) if key in ("rps", "busy") else min(found)

    def values(name: str, cell: str, key: str) -> list[float]:
        seen = [r["cells"][cell] for r in rounds[name] if cell in r["cells"]]
        return [one[key] for one in seen if key in one and one["requests"] >= MIN_REQUESTS]

    def ratio(name: str, cell: str, key: str) -> str:
        if best:
            ours, theirs = values(name, cell, key), values(reference, cell, key) if reference in rounds else []
            return f"{pick(key, ours) / pick(key, theirs):.2f}" if ours and any(theirs) else "-"
        pairs = [
            a["cells"][cell][key] / b["cells"][cell][key]
            for a, b in zip(rounds[name], rounds.get(reference, []))
            if key in a["cells"].get(cell, {}) and b["cells"].get(cell, {}).get(key)
        ]
        return f"{statistics.median(pairs):.2f}" if pairs else "-"

    for cell in cells:
        kind = f"open loop, {cell.rate}/s, mock latency 5 ms" if cell.rate else f"closed loop, {cell.connections} connections"
        lines += [f"\n### {cell.name} ({kind})\n",
                  f"| gateway | req/s | p50 ms | p95 ms | p99 ms | CPU s/1k req | of it user | CPU x {reference} | req/s x {reference} | busy | peak MiB | mock µs/req | bad |",
                  "|---" + "|---:" * 12 + "|"]
        for name in rounds:
            if not values(name, cell.name, "rps"):
                errors = [r["cells"].get(cell.name, {}).get("error") or r.get("error") for r in rounds[name]]
                lines.append(f"| {name} | {str(next((e for e in errors if e), '-'))[:120]} |")
                continue
            m = {k: pick(k, values(name, cell.name, k)) for k in
                 ("rps", "p50", "p95", "p99", "cpu_us", "user_us", "busy", "peak_mib", "mock_us")}
            bad = sum(values(name, cell.name, "bad"))
            lines.append(
                f"| {name} | {m['rps']:.0f} | {m['p50'] / 1e3:.3f} | {m['p95'] / 1e3:.3f} | {m['p99'] / 1e3:.3f} "
                f"| {m['cpu_us'] / 1e3:.4f} | {m['user_us'] / 1e3:.4f} | {ratio(name, cell.name, 'cpu_us')} | {ratio(name, cell.name, 'rps')} "
                f"| {m['busy'] * 100:.0f}% | {m['peak_mib']:.0f} | {m['mock_us']:.1f} | {bad:.0f} |"
            )
        if any(values(name, cell.name, "gapmax") for name in rounds) and cell.stream:
            lines += ["", "| gateway | first byte p50 ms | first byte p99 ms | gap p50 ms | gap p99 ms | gap max ms |", "|---|---:|---:|---:|---:|---:|"]
            for name in rounds:
                if values(name, cell.name, "gapmax"):
                    row = [pick(k, values(name, cell.name, k)) / 1e3 for k in ("first50", "first99", "gap50", "gap99", "gapmax")]
                    lines.append(f"| {name} | " + " | ".join(f"{x:.3f}" for x in row) + " |")
    lines += ["\n### start and idle memory\n", "| gateway | start s | idle RSS MiB |", "|---|---:|---:|"]
    for name, runs in rounds.items():
        good = [r for r in runs if "start_s" in r]
        if good:
            lines.append(f"| {name} | {statistics.median(r['start_s'] for r in good):.2f} | {statistics.median(r['idle_mib'] for r in good):.1f} |")
    return "\n".join(lines)


def pairs(items: list[str]) -> dict[str, str]:
    return dict(item.split("=", 1) for item in items)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="names, comma-separated; default: all that are installed")
    parser.add_argument("--cells", help="names, comma-separated; default: all")
    parser.add_argument("--add", action="append", default=[], metavar="NAME=URL", help="a gateway that is running already")
    parser.add_argument("--pid", action="append", default=[], metavar="NAME=PID", help="its process, for CPU and memory")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="of each cell, 10 at most")
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--reference", default="nginx")
    parser.add_argument("--best", action="store_true", help="the best of the rounds instead of the median: for a busy machine")
    parser.add_argument("--gateway-cpu", default="0")
    parser.add_argument("--load-cpu", default="1")
    parser.add_argument("--shared-network", action="store_true", help="no network namespace of its own")
    parser.add_argument("--tools", default=os.environ.get("BENCH_TOOLS", str(HERE / "mock-upstream/target/release")),
                        help="where mock-upstream and open-loop are; default: where cargo build --release puts them")
    parser.add_argument("--json", help="where the raw figures go")
    parser.add_argument("--table", nargs="+", metavar="JSON", help="run nothing: the table of these raw figures")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    options.seconds = min(options.seconds, 10)
    if options.table:
        rounds = {}
        for path in options.table:
            for name, runs in json.loads(Path(path).read_text()).items():
                rounds.setdefault(name, []).extend(runs)
        present = {cell for runs in rounds.values() for run in runs for cell in run["cells"]}
        print(summarise(rounds, [c for c in CELLS if c.name in present], options.reference, options.best))
        return 0
    options.added = pairs(options.add)
    options.pids = {name: int(pid) for name, pid in pairs(options.pid).items()}

    if not options.added and not options.shared_network and os.environ.get("BENCH_NETNS") != "1":
        os.environ["BENCH_NETNS"] = "1"
        os.execvp("unshare", ["unshare", "--net", "--", sys.executable, str(HERE / "run.py"), *sys.argv[1:]])
    if os.environ.get("BENCH_NETNS") == "1":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

    wanted = options.peers.split(",") if options.peers else None
    chosen = [p for p in PEERS if (p.name in wanted if wanted else not p.variant)]
    chosen += [Peer(name, None) for name in options.added]
    missing = [p.name for p in chosen if p.program() and not shutil.which(p.program())]
    chosen = [p for p in chosen if p.name not in missing]
    if missing:
        print("not installed:", ", ".join(missing), file=sys.stderr)
    cells = options.cells.split(",") if options.cells else None
    options.cells = [c for c in CELLS if not cells or c.name in cells]

    rounds: dict[str, list[dict]] = {p.name: [] for p in chosen}
    mock = subprocess.Popen(pinned(options.load_cpu, [f"{options.tools}/mock-upstream", f"127.0.0.1:{MOCK_PORT}"]), stderr=subprocess.DEVNULL,
                            start_new_session=True)
    try:
        wait_port(MOCK_PORT, 10, mock)
        for number in range(options.rounds):
            for peer in chosen:
                try:
                    result = one_peer(peer, mock.pid, options)
                except Exception as error:
                    result = {"cells": {}, "error": f"{type(error).__name__}: {error}"}
                rounds[peer.name].append(result)
                short = {k: round(v["rps"]) if "rps" in v else "-" for k, v in result["cells"].items()}
                print(f"round {number + 1} {peer.name}: {result.get('error', short)} load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
                if options.json:
                    Path(options.json).write_text(json.dumps(rounds))
    finally:
        mock.terminate()
        mock.wait()
    print(summarise(rounds, options.cells, options.reference, options.best))
    return 0


if __name__ == "__main__":
    sys.exit(main())
