#!/usr/bin/env python3
"""Ten minutes of mixed work through the release build, watched for what only time shows.

    bench/soak.py              600 seconds
    bench/soak.py 120          so many

An upstream and the clients are in here; nothing but Python and the built gateway is needed. The work is judged answers
(good ones, ones that break their schema, ones in prose), judged streams, relayed answers and streams, uploads, clients
that leave in the middle of all of these, clients that break HTTP, and a backend that resets, stalls, lies and fails.

It fails where memory grows (the median of the last fifth above that of the second fifth by more than 10 % and 2 MiB),
where descriptors are not back at the end, where a judged answer that breaks its schema got out, where a good request got
anything but its own answer, and where the gateway logged an error or ended.
"""

import collections
import http.client
import http.server
import json
import os
import random
import signal
import socket
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GATEWAY = Path(os.environ.get("PORTCULLIS", ROOT / "target/release/portcullis"))
CLIENTS = 12
EVERY = 3.0  # seconds between two samples
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["id", "n"],
    "additionalProperties": False,
}


# ------------------------------------------------------------------------------------------------ the upstream


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers as the request's text says: `kind id`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if "/files" in self.path:
            size = 0
            while size < length:
                piece = self.rfile.read(min(1 << 16, length - size))
                if not piece:
                    return self.hang_up()
                size += len(piece)
            return self.whole(json.dumps({"id": self.headers.get("x-own", ""), "bytes": size}))
        body = json.loads(self.rfile.read(length))
        text = [m["content"] for m in body["messages"] if m["role"] == "user"][-1]
        kind, own = text.split()[:2]
        self.answer(kind, own, body.get("stream", False))

    def answer(self, kind, own, stream):
        if kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return self.hang_up()
        if kind == "close":
            return self.hang_up()
        if kind == "error":
            return self.whole(json.dumps({"error": {"message": "busy", "code": "busy"}}), 503)
        if kind == "garbage":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")
            return self.hang_up()
        if kind == "extra":  # a good answer, and then one that nobody asked for
            text = self.completion(own, good(own))
            self.head(len(text))
            return self.wfile.write(text.encode() + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nSTRAY")
        said = {"bad": json.dumps({"id": own, "n": "LEAK"}), "prose": f"Here: {good(own)} Bye.", "none": "LEAK"}
        said = said.get(kind, good(own))
        if kind == "large":
            said = json.dumps({"id": own + "x" * 200_000, "n": 1})
        if not stream:
            if kind == "cut":
                text = self.completion(own, said)
                self.head(len(text))
                self.wfile.write(text[:40].encode())
                return self.hang_up()
            return self.whole(self.completion(own, said))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        pieces = [said[i : i + 8] for i in range(0, len(said), 8)] if len(said) < 1000 else [said]
        for index, piece in enumerate(pieces):
            if kind == "cut" and index == 2:
                return self.hang_up()
            self.event({"content": piece}, None, own)
            if kind == "slow":
                time.sleep(0.02)
        self.event({}, "stop", own)
        self.chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
        return None

    def completion(self, own, said):
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        return json.dumps({"id": own, "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})

    def event(self, delta, finish, own):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        event = {"id": own, "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        self.chunk(f"data: {json.dumps(event)}\n\n")

    def chunk(self, text):
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def head(self, length, status=200):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(length))
        self.end_headers()

    def whole(self, text, status=200):
        self.head(len(text), status)
        self.wfile.write(text.encode())

    def hang_up(self):
        self.close_connection = True


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # the gateway hangs up on us: that is what is tried


def good(own):
    return json.dumps({"id": own, "n": 7})


# ------------------------------------------------------------------------------------------------ the clients


class Work:
    """What the clients do, and what came of it."""

    def __init__(self, port):
        self.port, self.stop = port, threading.Event()
        self.done, self.wrong, self.lock = collections.Counter(), [], threading.Lock()

    def run(self, seed):
        draw = random.Random(seed)
        connection, serial = None, 0
        kinds = [
            (self.judged, 30), (self.judged_stream, 15), (self.relayed, 15), (self.relayed_stream, 15),
            (self.upload, 6), (self.refused, 14), (self.failing, 12), (self.abandoned, 12), (self.broken, 5),
        ]  # fmt: skip
        while not self.stop.is_set():
            serial += 1
            act = draw.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
            connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            try:
                kept = act(connection, f"{seed}-{serial}", draw)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is no answer
                kept = False
                if not self.stop.is_set():
                    self.fault(f"{act.__name__}: {error!r}")
            with self.lock:
                self.done[act.__name__] += 1
            if not kept:
                connection.close()
                connection = None
            time.sleep(draw.random() * 0.01)
        if connection:
            connection.close()

    def fault(self, text):
        with self.lock:
            self.wrong.append(text)

    def expect(self, holds, what, status, text):
        if not holds:
            self.fault(f"{what}: {status} {text[:300]!r}")

    def body(self, kind, own, judged=False, stream=False):
        body = {"model": "m", "messages": [{"role": "user", "content": f"{kind} {own}"}]}
        if stream:
            body["stream"] = True
        if judged:
            schema = {"name": "r", "strict": True, "schema": SCHEMA}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return json.dumps(body).encode()

    def ask(self, connection, body):
        connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), not answer.will_close

    def judged(self, connection, own, draw):
        kind = draw.choice(["good", "good", "prose", "large", "extra"])
        status, text, kept = self.ask(connection, self.body(kind, own, judged=True))
        said = json.loads(json.loads(text)["choices"][0]["message"]["content"]) if status == 200 else {}
        self.expect(status == 200 and str(said.get("id", "")).rstrip("x") == own, f"judged {kind}", status, text)
        return kept

    def judged_stream(self, connection, own, draw):
        kind = draw.choice(["good", "slow", "large"])
        status, text, kept = self.ask(connection, self.body(kind, own, judged=True, stream=True))
        said = self.streamed(text) if status == 200 else "{}"
        self.expect(status == 200 and json.loads(said).get("id", "").rstrip("x") == own, f"held {kind}", status, text)
        return kept

    def streamed(self, text):
        events = [line[6:] for line in text.split("\n") if line.startswith("data: {")]
        deltas = [json.loads(event)["choices"][0]["delta"] for event in events]
        return "".join(delta.get("content") or "" for delta in deltas)

    def relayed(self, connection, own, draw):
        kind = draw.choice(["good", "large", "extra"])
        status, text, kept = self.ask(connection, self.body(kind, own))
        self.expect(status == 200 and json.loads(text)["id"] == own, f"relayed {kind}", status, text)
        return kept

    def relayed_stream(self, connection, own, draw):
        kind = draw.choice(["good", "slow"])
        status, text, kept = self.ask(connection, self.body(kind, own, stream=True))
        self.expect(status == 200 and self.streamed(text) == good(own), f"stream {kind}", status, text)
        return kept

    def upload(self, connection, own, draw):
        data = b"x" * draw.choice([10, 70_000, 1_500_000])
        headers = {"content-type": "multipart/form-data; boundary=x", "x-own": own}
        connection.request("POST", "/v1/files", data, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        self.expect(answer.status == 200 and json.loads(text) == {"id": own, "bytes": len(data)}, "upload", answer.status, text)
        return not answer.will_close

    def refused(self, connection, own, draw):
        kind, stream = draw.choice(["bad", "none"]), draw.random() < 0.5
        status, text, kept = self.ask(connection, self.body(kind, own, judged=True, stream=stream))
        self.expect(status == 422 and '"n": "LEAK"' not in text, f"refused {kind}", status, text)
        return kept

    def failing(self, connection, own, draw):
        kind = draw.choice(["reset", "close", "error", "garbage", "cut"])
        stream = draw.random() < 0.5
        status, text, kept = self.ask(connection, self.body(kind, own, judged=True, stream=stream))
        self.expect(status in (502, 503) and "LEAK" not in text, f"failing {kind}", status, text)
        return kept

    def abandoned(self, _, own, draw):
        """Goes away: before the answer, in it, or in its own body."""
        stream = draw.random() < 0.7
        body = self.body(draw.choice(["slow", "good", "large"]), own, judged=draw.random() < 0.5, stream=stream)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port), 10) as leaving:
            whole = head.encode() + body
            leaving.sendall(whole[: draw.choice([len(whole), len(whole), len(whole) - 20, len(head) - 9, 3])])
            time.sleep(draw.random() * 0.05)
            if draw.random() < 0.5:
                leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return True

    def broken(self, _, _own, draw):
        shapes = [
            b"GET / HTTP/1.1\nhost: a\n\n",
            b"POST /v1/files HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: \0\r\n\r\n",
        ]
        with socket.create_connection(("127.0.0.1", self.port), 10) as bad:
            bad.sendall(draw.choice(shapes))
            answer = b""
            while piece := bad.recv(65536):
                answer += piece
        self.expect(answer.startswith(b"HTTP/1.1 400 "), "broken", "-", answer.decode(errors="replace"))
        return True


# ------------------------------------------------------------------------------------------------ the watch


def memory(pid):
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return resident * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def metrics(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def start(folder, upstream):
    config = folder / "portcullis.yaml"
    config.write_text(
        "version: 1\n"
        'listen: {address: "127.0.0.1:0", limits: {header_timeout: 2s, idle_timeout: 5s}}\n'
        'admin: {address: "127.0.0.1:0"}\n'
        "auth: {mode: none}\n"
        f'backends: {{up: {{kind: openai, base_url: "http://127.0.0.1:{upstream}"}}}}\n'
        'models: {"*": {targets: [{backend: up}]}}\n'
    )
    log = (folder / "log").open("wb")
    command = [str(GATEWAY), "serve", "--config", str(config)]
    gateway = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env={"NO_COLOR": "1"}, text=True)
    ports = {}
    for line in gateway.stdout:
        for what in ("listening on", "admin on"):
            if line.startswith(what):
                ports[what] = int(line.rsplit(":", 1)[1])
        if len(ports) == 2:
            break
    else:
        sys.exit(f"the gateway did not start:\n{(folder / 'log').read_text()}")
    threading.Thread(target=gateway.stdout.read, daemon=True).start()
    return gateway, ports["listening on"], ports["admin on"]


def watch(work, gateway, seconds):
    """Samples until the time is up, or the gateway ends."""
    samples, begun = [], time.monotonic()
    print("  seconds  RSS MiB  descriptors  requests  wrong")
    while (now := time.monotonic() - begun) < seconds and gateway.poll() is None:
        time.sleep(min(EVERY, seconds - now))
        with work.lock:
            count, wrong = sum(work.done.values()), len(work.wrong)
        samples.append((time.monotonic() - begun, memory(gateway.pid), descriptors(gateway.pid), count, wrong))
        print("  {:7.0f}  {:7.1f}  {:11d}  {:8d}  {:5d}".format(*samples[-1]), flush=True)
    return samples


def at_rest(gateway, admin, idle):
    """Whether nothing is left once the clients are gone: connections kept for a backend end after some 15 s."""
    until = time.monotonic() + 40
    while time.monotonic() < until:
        text = metrics(admin)
        quiet = "portcullis_in_flight 0" in text and "portcullis_held_bytes 0" in text
        if quiet and descriptors(gateway.pid) <= idle + 2:
            return None
        time.sleep(0.5)
    return f"{descriptors(gateway.pid)} descriptors are open at the end, {idle} at the start, or requests are under way"


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    upstream = Server(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        folder = Path(folder)
        gateway, port, admin = start(folder, upstream.server_address[1])
        try:
            metrics(admin)
            time.sleep(0.2)
            idle = descriptors(gateway.pid)
            work = Work(port)
            clients = [threading.Thread(target=work.run, args=(seed,)) for seed in range(CLIENTS)]
            [client.start() for client in clients]
            samples = watch(work, gateway, seconds)
            work.stop.set()
            [client.join(30) for client in clients]
            faults = list(work.wrong[:10])
            if gateway.poll() is not None:
                faults.append(f"the gateway ended with {gateway.returncode}")
            else:
                faults += filter(None, [at_rest(gateway, admin, idle)])
            fifth = max(1, len(samples) // 5)
            early = statistics.median(sample[1] for sample in samples[fifth : 2 * fifth] or samples)
            late = statistics.median(sample[1] for sample in samples[-fifth:])
            print(f"RSS: {early:.1f} MiB in the second fifth, {late:.1f} MiB in the last one; " + str(dict(work.done)))
            if late > early * 1.1 + 2:
                faults.append(f"memory grows: {early:.1f} MiB, later {late:.1f} MiB")
        finally:
            gateway.send_signal(signal.SIGTERM)
            try:
                gateway.wait(10)
            except subprocess.TimeoutExpired:
                gateway.kill()
                gateway.wait()
        log = (folder / "log").read_text(errors="replace").splitlines()
        faults += [line for line in log if " ERROR " in line or "panicked" in line][:10]
        faults += [f"a body is in the log: {line}" for line in log if "LEAK" in line][:3]
    for fault in faults:
        print("FAULT", fault)
    print("the soak failed" if faults else "nothing leaked, nothing got out")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
