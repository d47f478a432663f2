#!/usr/bin/env python3
"""A scripted upstream in OpenAI's shape, for the SDK tests: what it answers is chosen by the model's name.

The name is `BEHAVIOUR` or `BEHAVIOUR--ANYTHING`; the part after the dashes only keeps the counters of
one test apart from those of another. With `stream: true` the same answer comes as server-sent events.

    GET /calls      {"MODEL": {"calls": N, "done": N, "cancelled": N}}
    GET /script     {"BEHAVIOUR": {"text": ..., "slice": ...}}: what the model writes, and the part of it that is the answer
    GET /last?model=MODEL   the last request that came for this model: {"headers": ..., "body": ...}

Prints `upstream on http://127.0.0.1:PORT` once it listens, and runs until it is killed.
"""

import json
import select
import socket
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# White space, an escape that could have been written plainly, a number with a trailing zero and one that no
# double can hold: a gateway that parses and prints again changes these bytes.
CLEAN = '{ "name" : "Ad\\u00e8le \\"Ada\\"",\n  "age":36, "ratio": 1.50, "serial": 12345678901234567890,\t"tags":["x" ,"ÿ \U0001f980"] }'
OTHER = '{"name": "Bob", "age": 41, "ratio": 0.25, "serial": 7, "tags": []}'
WRONG = '{"name": "Ada", "age": "thirty-six", "ratio": 1.5, "serial": 1, "tags": ["x"]}'
CALL = '{"city" : "\\u004fslo", "days":3}'
CALL_TWO = '{"city": "Bergen","days": 10 }'
CALL_BAD = '{"city": 5, "days": "three"}'
THOUGHT = 'They want {"name": ..., "age": ...}. Perhaps {"name": "Eve", "age": 1}?'

# behaviour -> (what the model writes, the slice of it that is the answer or None, finish reason)
TEXTS = {
    "clean": (CLEAN, CLEAN, "stop"),
    "fenced": (f"```json\n{CLEAN}\n```", CLEAN, "stop"),
    "preamble": (f"Sure! Here is the record you asked for:\n\n{CLEAN}\n\nLet me know if anything is missing.", CLEAN, "stop"),
    "think": (f"<think>\n{THOUGHT}\n</think>\n\n{CLEAN}", CLEAN, "stop"),
    "slow": (CLEAN, CLEAN, "stop"),
    "prose": ("Ada is thirty-six years old, and that is all I can tell.", None, "stop"),
    "broken": (CLEAN.replace("36,", "36,,"), None, "stop"),
    "duplicate": (OTHER.replace('"age": 41', '"age": 41, "age": 42'), None, "stop"),
    "ambiguous": (f"Either\n{CLEAN}\nor\n{OTHER}\n", None, "stop"),
    "wrong_type": (WRONG, None, "stop"),
    "wrong_fenced": (f"```json\n{WRONG}\n```", None, "stop"),
    "filtered": (CLEAN[:30], None, "content_filter"),
    "length": (CLEAN[:30], None, "length"),
    "length_whole": (OTHER, None, "length"),
    "empty": ("", None, "stop"),
    "blank": (" \n\t ", None, "stop"),
    "text": ("Just text: `{not json}`, streamed as it comes.", None, "stop"),
    "tool_text": ("I would rather not call anything.", None, "stop"),
    "n_one_bad": (CLEAN, None, "stop"),
    "endless": ("tick ", None, "stop"),
}
REFUSAL = "I can't help with that request."
TOOLS = {  # behaviour -> arguments of each call, and the name if it is not the one that was offered
    "tool": ([CALL], None),
    "tool_bad": ([CALL_BAD], None),
    "tool_broken": ([CALL[:-1]], None),
    "tool_fenced": ([f"```json\n{CALL}\n```"], None),
    "tool_unknown": ([CALL], "launch_rockets"),
    "tools_two": ([CALL, CALL_TWO], None),
    "tools_one_bad": ([CALL, CALL_BAD], None),
}
ERRORS = {
    "http_400": (400, {"message": "messages: too many", "type": "invalid_request_error", "param": "messages", "code": "bad_messages"}),
    "http_401": (401, {"message": "Incorrect API key provided", "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}),
    "http_429": (429, {"message": "Rate limit reached", "type": "requests", "param": None, "code": "rate_limit_exceeded"}),
    "http_500": (500, {"message": "The server had an error", "type": "server_error", "param": None, "code": None}),
    "http_503": (503, {"message": "Overloaded", "type": "server_error", "param": None, "code": None}),
}
USAGE = {"prompt_tokens": 11, "completion_tokens": 22, "total_tokens": 33}
OTHER_BEHAVIOURS = ["refusal", "error_in_200", "html_in_200", "cut", "error_in_stream"]
SLOW_S = 1.0
ENDLESS_S = 20.0

calls: dict[str, dict[str, int]] = {}
last: dict[str, dict] = {}
files: dict[str, bytes] = {}
lock = threading.Lock()


class Gone(Exception):
    """The other side closed the connection."""


def count(model: str, what: str) -> None:
    with lock:
        calls.setdefault(model, {"calls": 0, "done": 0, "cancelled": 0})[what] += 1


def choices_of(behaviour: str, request: dict) -> list[tuple[dict, str]]:
    """The messages of one answer, each with its finish reason."""
    wanted = request.get("n") or 1
    if behaviour == "refusal":
        return [({"role": "assistant", "content": None, "refusal": REFUSAL}, "stop")] * wanted
    if behaviour in TOOLS:
        arguments, name = TOOLS[behaviour]
        offered = [tool["function"]["name"] for tool in request.get("tools") or [{"function": {"name": "none_offered"}}]]
        choice = request.get("tool_choice")
        forced = choice["function"]["name"] if isinstance(choice, dict) else offered[0]
        made = [
            {"id": f"call_{i}", "type": "function", "function": {"name": name or forced, "arguments": text}}
            for i, text in enumerate(arguments)
        ]
        return [({"role": "assistant", "content": None, "refusal": None, "tool_calls": made}, "tool_calls")] * wanted
    text, _, finish = TEXTS[behaviour]
    found = [({"role": "assistant", "content": text, "refusal": None}, finish) for _ in range(wanted)]
    if behaviour == "n_one_bad":
        found[-1] = ({"role": "assistant", "content": WRONG, "refusal": None}, "stop")
    return found


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


def deltas(message: dict) -> list[dict]:
    """What a stream says of one message, bit by bit, as the hosted API does."""
    out: list[dict] = [{"role": "assistant", "content": "" if message.get("content") is not None else None}]
    out += [{"content": piece} for piece in pieces(message.get("content") or "")]
    out += [{"refusal": piece} for piece in pieces(message.get("refusal") or "")]
    for index, call in enumerate(message.get("tool_calls") or []):
        opening = call | {"index": index, "function": call["function"] | {"arguments": ""}}
        out.append({"tool_calls": [opening]})
        out += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces(call["function"]["arguments"])]
    return out


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def send(self, status: int, body: bytes, content_type: str = "application/json", headers: dict | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-request-id", "req_upstream")
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, status: int, value: object, headers: dict | None = None) -> None:
        self.send(status, json.dumps(value, ensure_ascii=False).encode(), headers=headers)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/calls":
            with lock:
                self.send_json(200, calls)
        elif url.path == "/script":
            script = {name: {"text": text, "slice": part} for name, (text, part, _) in TEXTS.items()}
            script |= {name: {"arguments": arguments} for name, (arguments, _) in TOOLS.items()}
            script["refusal"] = {"text": REFUSAL}
            self.send_json(200, script)
        elif url.path == "/last":
            with lock:
                self.send_json(200, last.get(urllib.parse.parse_qs(url.query)["model"][0]))
        elif url.path.endswith("/content") and (held := files.get(url.path.split("/")[-2])) is not None:
            self.send(200, held, "application/octet-stream")
        else:
            self.send_json(404, {"error": {"message": "no such path", "type": "invalid_request_error", "param": None, "code": None}})

    def body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        whole = b""
        while size := int(self.rfile.readline(), 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def do_DELETE(self):
        found = files.pop(self.path.split("/")[-1], None) is not None
        self.send_json(200 if found else 404, {"id": self.path.split("/")[-1], "object": "file", "deleted": found})

    def open_path(self, path: str, body: bytes) -> None:
        """Paths that no contract guards: embeddings, and files, which are kept as they came."""
        if path == "/v1/embeddings":
            request = json.loads(body)
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}]
            return self.send_json(200, {"object": "list", "data": data, "model": request["model"], "usage": {"prompt_tokens": 1, "total_tokens": 1}})
        boundary = b"--" + self.headers["content-type"].split("boundary=")[1].strip('"').encode()
        parts = [part.split(b"\r\n\r\n", 1) for part in body.split(boundary)[1:-1]]
        held = next(content[:-2] for head, content in parts if b"filename=" in head)
        name = f"file-{len(files)}"
        files[name] = held
        self.send_json(200, {"id": name, "object": "file", "bytes": len(held), "created_at": 1, "filename": "f", "purpose": "batch", "status": "processed"})

    def do_POST(self):
        body = self.body()
        path = urllib.parse.urlsplit(self.path).path
        if path != "/v1/chat/completions":
            return self.open_path(path, body)
        request = json.loads(body)
        model = request["model"]
        behaviour = model.split("--")[0]
        with lock:
            last[model] = {"headers": {k.lower(): v for k, v in self.headers.items()}, "body": request}
        count(model, "calls")
        try:
            self.answer(behaviour, request)
            count(model, "done")
        except (Gone, BrokenPipeError, ConnectionResetError):
            count(model, "cancelled")
            self.close_connection = True

    def pause(self, seconds: float) -> None:
        """Waits, and notices at once if the other side goes away."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            readable, _, _ = select.select([self.connection], [], [], left)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise Gone
            if readable:
                time.sleep(min(left, 0.01))

    def answer(self, behaviour: str, request: dict) -> None:
        stream = bool(request.get("stream"))
        if behaviour in ERRORS:
            status, error = ERRORS[behaviour]
            headers = {"retry-after": "1"} if status == 429 else None
            return self.send_json(status, {"error": error}, headers)
        if behaviour == "error_in_200":
            return self.send_json(200, {"error": {"message": "Provider returned error", "code": 502}})
        if behaviour == "html_in_200":
            return self.send(200, b"<html><body>Welcome to the captive portal</body></html>", "text/html")
        if behaviour in ("cut", "error_in_stream") and not stream:
            behaviour = "clean"
        if behaviour == "endless" and not stream:
            self.pause(ENDLESS_S)
        if behaviour == "slow" and not stream:
            self.pause(SLOW_S)
        head = {"id": "chatcmpl-scripted", "created": 1700000000, "model": request["model"], "system_fingerprint": "fp_scripted"}
        if stream:
            return self.stream(behaviour, request, head)
        found = [
            {"index": i, "message": message, "logprobs": None, "finish_reason": finish}
            for i, (message, finish) in enumerate(choices_of(behaviour, request))
        ]
        self.send_json(200, head | {"object": "chat.completion", "choices": found, "usage": USAGE, "x_scripted": {"kept": [1.0, "é"]}})

    def stream(self, behaviour: str, request: dict, head: dict) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("x-request-id", "req_upstream")
        self.end_headers()
        head = head | {"object": "chat.completion.chunk"}
        source = "clean" if behaviour in ("cut", "error_in_stream") else behaviour
        wait = 0.02 if behaviour in ("slow", "text") else 0.0
        self.write_chunk(b": scripted\n\n")
        if behaviour == "endless":
            for _ in range(int(ENDLESS_S / 0.05)):
                self.event(head | {"choices": [{"index": 0, "delta": {"content": "tick "}, "finish_reason": None}]})
                self.pause(0.05)
            return self.write_chunk(b"")
        for index, (message, finish) in enumerate(choices_of(source, request)):
            parts = deltas(message)
            for number, delta in enumerate(parts):
                self.event(head | {"choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}]})
                if number == len(parts) // 2 and behaviour == "cut":
                    self.close_connection = True
                    return self.write_chunk(b"")
                if number == len(parts) // 2 and behaviour == "error_in_stream":
                    self.event({"error": {"message": "Provider disconnected", "code": 502}})
                    return self.write_chunk(b"")
                if wait:
                    self.pause(wait)
            self.event(head | {"choices": [{"index": index, "delta": {}, "logprobs": None, "finish_reason": finish}]})
        if (request.get("stream_options") or {}).get("include_usage"):
            self.event(head | {"choices": [], "usage": USAGE})
        self.write_chunk(b"data: [DONE]\n\n")
        self.write_chunk(b"")

    def event(self, value: dict) -> None:
        self.write_chunk(b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n")

    def write_chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def main() -> None:
    server = Server(("127.0.0.1", 0), Handler)
    print(f"upstream on http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
