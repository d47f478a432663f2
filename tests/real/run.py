#!/usr/bin/env python3
"""A real llama.cpp server behind the gateway: nothing that breaks its schema gets through, and no byte is changed.

    tests/real/run.py [--requests N] [--concurrency N] [--verbose]

client -> gateway -> tap -> llama.cpp. The tap keeps every response body exactly as the server wrote it, under the
marker that each request carries in its prompt. See README.md beside this file.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "sdk"))
sys.dont_write_bytecode = True  # the folder of the tests stays clean
from stack import start_gateway  # noqa: E402

CACHE = Path(os.environ.get("PORTCULLIS_TEST_CACHE", ROOT / "target/sdk")).resolve()
HOME = Path(os.environ.get("REAL_LLM_HOME", CACHE / "real-llm")).resolve()
MODEL = os.environ.get("REAL_LLM_MODEL", "tiny")
KEY = "sk-tap-9d8c7b6a5f4e"
MAX_TOKENS = 200
DEADLINE_S = 300

CODES = {
    422: {
        "output_not_json", "output_ambiguous", "output_truncated", "output_duplicate_key", "output_too_deep",
        "output_number_out_of_range", "schema_violation",
    },
    502: {"output_empty"},
}  # fmt: skip


@dataclass
class Kind:
    """One kind of request. `plain`: a schema on which no two validators differ; `bias` steers the tiny model's tokens."""

    name: str
    schema: dict
    plain: bool = True
    bias: dict = field(default_factory=dict)
    stop: list = field(default_factory=list)


def closed(required: list[str] | None = None, **properties) -> dict:
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


WORD = {"type": "string", "maxLength": 10}
KINDS = [
    Kind("flat", closed(name=WORD, age={"type": "integer", "minimum": 0, "maximum": 99}, member={"type": "boolean"})),
    Kind("nested", closed(lines={"type": "array", "maxItems": 3, "items": closed(kind={"enum": ["a", "b", "c"]}, note=WORD)})),
    Kind("optional", closed(["a"], a={"anyOf": [WORD, {"type": "null"}]}, b={"const": "fixed"}, c={"type": "integer", "minimum": -5, "maximum": 5})),
    Kind("reference", {"$defs": {"pair": closed(x=WORD, y=WORD)}} | closed(first={"$ref": "#/$defs/pair"}, second={"$ref": "#/$defs/pair"})),
    Kind("number", closed(x={"type": "number"}, y={"type": "number"}), plain=False),
    Kind("unique", closed(ids={"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 2, "maxItems": 4, "uniqueItems": True})),
    Kind("multiple", closed(n={"type": "integer", "minimum": 0, "maximum": 999, "multipleOf": 7})),
    Kind("email", closed(email={"type": "string", "format": "email", "maxLength": 12}), plain=False),
    Kind("pattern", {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "minProperties": 2, "additionalProperties": False}),
    Kind("endless", closed(text={"type": "string", "minLength": 150})),
]
# Token ids of the tiny model's vocabulary, where each printable character is a token: what it writes by chance is
# now and then right, so that something is accepted where the prompt alone asks for it.
DIGIT, STOP_DIGIT, OPEN, CLOSE, END = 280, 281, 350, 352, 355
BIASED = [
    Kind("digits", {"type": "integer", "maximum": 5555}, bias={DIGIT: 60, STOP_DIGIT: 61}, stop=["6"]),
    Kind("braces", {"type": "object"}, bias={OPEN: 60, CLOSE: 60, END: 59}),
]


def in_our_environment() -> None:
    """Sets up the server's virtual environment, which has the validator too, and goes on inside it."""
    os.environ["REAL_LLM_HOME"] = str(HOME)
    venv = Path(os.environ.get("REAL_LLM_VENV", HOME / "venv")).absolute()
    if Path(sys.prefix).resolve() != venv.resolve():
        subprocess.run(["bash", str(HERE / "real-llm.sh"), "setup"], check=True)
        os.execv(venv / "bin/python", [str(venv / "bin/python"), *sys.argv])


@dataclass
class Exchange:
    """What the server answered to one request of the gateway's: the body is kept whatever becomes of it."""

    request: dict
    status: int
    body: bytearray


class Tap(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, target: str):
        super().__init__(("127.0.0.1", 0), TapHandler)
        self.target = urllib.parse.urlsplit(target)
        self.lock = threading.Lock()
        self.seen: dict[str, list[Exchange]] = {}
        self.odd: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class TapHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def relay(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        target = self.server.target
        upstream = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "content-length")}
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            exchange = Exchange(json.loads(body or b"{}"), answer.status, bytearray())
            marker = re.search(rb"marker-[0-9a-f]{16}", body)
            if marker:
                with self.server.lock:
                    self.server.seen.setdefault(marker[0].decode(), []).append(exchange)
            elif body:
                self.server.odd.append(f"{self.command} {self.path} without a marker")
            self.send_response(answer.status)
            self.send_header("content-type", answer.headers.get("content-type", "application/json"))
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            while data := answer.read1(65536):
                exchange.body += data
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        finally:
            upstream.close()

    do_GET = do_POST = relay


@dataclass
class Request:
    kind: Kind
    marker: str
    seed: int
    stream: bool
    alias: str

    def body(self) -> bytes:
        request = {
            "model": self.alias,
            "messages": [
                {"role": "system", "content": "Answer with data only."},
                {"role": "user", "content": f"{self.marker}: fill in the form."},
            ],
            "max_tokens": MAX_TOKENS,
            "seed": self.seed,
            "response_format": {"type": "json_schema", "json_schema": {"name": self.kind.name, "strict": True, "schema": self.kind.schema}},
        }
        if self.kind.bias:
            request["logit_bias"] = {str(token): bias for token, bias in self.kind.bias.items()}
        if self.kind.stop:
            request["stop"] = self.kind.stop
        if self.stream:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        return json.dumps(request).encode()


class Wrong(Exception):
    """A rule that an answer broke."""


def demand(holds: object, rule: str) -> None:
    if not holds:
        raise Wrong(rule)


def strict_json(text: str) -> object:
    """The value of a text that is JSON and nothing else: no NaN, no key twice, nothing beyond a double."""

    def pairs(found):
        if len({key for key, _ in found}) != len(found):
            raise ValueError("a key twice")
        return dict(found)

    def constant(name):
        raise ValueError(name)

    def number(literal):
        value = float(literal)
        if value in (float("inf"), float("-inf")):
            raise ValueError("beyond a double")
        return value

    return json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_float=number)


def events(body: bytes) -> list[dict]:
    """The data of an event stream as these two servers write it, without `[DONE]`."""
    found = []
    for line in body.decode("utf-8").split("\n"):
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            found.append(json.loads(line[5:]))
    return found


def said(body: bytes, stream: bool) -> tuple[str | None, str | None]:
    """The text and the finish reason of an answer of choice 0."""
    if not stream:
        choice = json.loads(body)["choices"][0]
        return choice["message"].get("content"), choice["finish_reason"]
    texts, finish = [], None
    for event in events(body):
        for choice in event.get("choices", []):
            texts.append(choice["delta"].get("content") or "")
            finish = choice.get("finish_reason") or finish
    return "".join(texts), finish


def literal(body: bytes) -> bytes | None:
    """The string literal of `content` in a body that is not a stream, as it was written."""
    found = re.search(rb'"content"\s*:\s*"((?:[^"\\]|\\.)*)"', body, re.S)
    return found[1] if found else None


def check_error(status: int, headers, body: dict) -> str:
    """The code of an error that has the shape it must have."""
    error = body["error"]
    demand(status in CODES, f"status {status}: {str(error)[:200]}")
    demand(error["code"] in CODES[status], f"code {error['code']} with status {status}")
    demand(isinstance(error["message"], str) and error["message"], "an error without a message")
    demand(error["type"] == ("contract_violation" if status == 422 else "upstream_error"), f"type {error['type']}")
    detail = error["portcullis"]
    demand(detail["outcome"] == ("rejected" if status == 422 else "failed"), f"outcome {detail['outcome']}")
    demand(detail["request_id"], "an error without a request id")
    demand(status != 422 or headers["x-should-retry"] == "false", "a rejection that asks for a retry")
    return error["code"]


def judge(request: Request, status: int, headers, body: bytes, tap: Tap) -> str:
    """What came of a request, in a word; `Wrong` if it may not be."""
    from jsonschema import Draft202012Validator, FormatChecker

    validator = Draft202012Validator(request.kind.schema, format_checker=FormatChecker())
    exchanges = tap.seen.get(request.marker, [])
    demand(1 <= len(exchanges) <= 2, f"{len(exchanges)} calls of the server")
    last = exchanges[-1]
    demand(last.status == 200, f"the server itself answered {last.status}: {bytes(last.body)[:200]!r}")
    demand(bool(last.request.get("stream")) == request.stream, "the gateway did not ask as it was asked")
    demand(last.request.get("seed") == request.seed, "a member of the request was lost")
    # The very bytes of the request's schema, as `body` wrote them; the native mode only where the backend has one.
    shown = [message["content"] for message in last.request["messages"] if json.dumps(request.kind.schema) in message["content"]]
    demand(len(shown) == 1, f"the schema stands in {len(shown)} messages")
    demand(("response_format" in last.request) == (request.alias == "native"), "the native mode is not as the backend has it")
    written, finish = said(bytes(last.body), request.stream)
    written = written or ""

    whole = finish == "stop"
    try:
        whole = whole and validator.is_valid(strict_json(written))
    except ValueError:
        whole = False

    error = None
    if status == 200 and request.stream:
        error = next((event for event in events(body) if "error" in event), None)
    if status != 200 or error:
        late = 422 if error and error["error"]["type"] == "contract_violation" else 502
        code = check_error(late if error else status, {"x-should-retry": "false"} if error else headers, error or json.loads(body))
        demand(headers["x-portcullis-outcome"] or error, "no outcome header")
        demand(not (whole and request.kind.plain), f"{code}, but the whole text is valid: {written[:200]!r}")
        for word in re.findall(r"[^\s\"]{12,}", written) if code == "output_not_json" else []:
            demand(word.encode() not in body, "the error quotes a text that could not be extracted")
        return code

    demand(headers["x-portcullis-outcome"] == "accepted", f"200, but {headers['x-portcullis-outcome']}")
    got, reason = said(body, request.stream)
    demand(isinstance(got, str), "accepted without content")
    demand(reason == "stop", f"accepted with finish reason {reason}")
    demand(finish == "stop", f"the server stopped for {finish}")
    try:
        value = strict_json(got)
    except ValueError as fault:
        raise Wrong(f"accepted, but no JSON ({fault}): {got[:200]!r}") from None
    faults = [f"{fault.json_path}: {fault.message}" for fault in validator.iter_errors(value)]
    demand(not faults, f"accepted against its schema: {faults}")
    demand(got.encode("utf-8", "surrogatepass") in written.encode("utf-8", "surrogatepass"), f"{got!r} is no slice of {written!r}")
    if not request.stream:
        ours, theirs = literal(body), literal(bytes(last.body))
        demand(ours and theirs and ours in theirs, "the bytes of the content were changed")
    else:
        demand(b"data: [DONE]" in body, "a stream without its end")
        demand([event for event in events(body) if event.get("usage")], "no usage, though it was asked for")
    return "accepted"


def send(gateway: urllib.parse.SplitResult, request: Request) -> tuple[int, object, bytes]:
    connection = http.client.HTTPConnection(gateway.hostname, gateway.port, timeout=60)
    try:
        headers = {"content-type": "application/json", "authorization": "Bearer sk-client"}
        connection.request("POST", "/v1/chat/completions", request.body(), headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def config(tap: str) -> str:
    return f"""version: 1
listen: {{address: 127.0.0.1:0}}
admin: {{address: 127.0.0.1:0}}
auth: {{mode: none}}
telemetry: {{log: warn}}
backends:
  native: {{kind: llamacpp, base_url: "{tap}/v1", api_key: "{KEY}"}}
  prompt: {{kind: openai_compatible, base_url: "{tap}/v1", api_key: "{KEY}"}}
models:
  native: {{targets: [{{backend: native, model: tiny}}]}}
  prompt: {{targets: [{{backend: prompt, model: tiny}}]}}
"""


def requests(alias: str, stream: bool, count: int) -> list[Request]:
    made = []
    for number in range(count):
        # By prompt alone most kinds give the same garbage: two in three are steered.
        steered = alias == "prompt" and MODEL == "tiny" and number % 3
        kind = BIASED[number % 3 - 1] if steered else KINDS[(number // 3 if alias == "prompt" else number) % len(KINDS)]
        made.append(Request(kind, f"marker-{os.urandom(8).hex()}", 1000 + number, stream, alias))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100, help="of each of the four modes")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--verbose", action="store_true", help="one line for each request")
    options = parser.parse_args()
    in_our_environment()

    started = time.monotonic()
    passed, failures = 0, []
    folder = tempfile.TemporaryDirectory(prefix="portcullis-real-")
    gateway = None
    server = [str(HERE / "real-llm.sh")]
    try:
        url = subprocess.run(["bash", *server, "start"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        tap = Tap(url)
        gateway = start_gateway(config(tap.url), Path(folder.name))
        base = urllib.parse.urlsplit(gateway.urls["listening"])
        table: dict[str, collections.Counter] = {}
        for alias in ("prompt", "native"):
            for stream in (False, True):
                mode = f"{alias}, {'streaming' if stream else 'not streaming'}"
                counts = table[mode] = collections.Counter()

                def one(request: Request) -> tuple[Request, str | None, str | None]:
                    if time.monotonic() - started > DEADLINE_S:
                        return request, None, f"not sent: {DEADLINE_S} s are over"
                    try:
                        return request, judge(request, *send(base, request), tap), None
                    except (Wrong, OSError, http.client.HTTPException, ValueError, KeyError, TypeError, IndexError) as fault:
                        return request, None, f"{type(fault).__name__}: {fault}"

                with concurrent.futures.ThreadPoolExecutor(options.concurrency) as pool:
                    results = list(pool.map(one, requests(alias, stream, options.requests)))
                for request, outcome, fault in results:
                    counts[outcome or "WRONG"] += 1
                    if options.verbose:
                        print(f"{mode}: {request.kind.name}: {outcome or fault}")
                    if fault:
                        failures.append(f"{mode}, {request.kind.name}, {request.marker}: {fault}")
                    else:
                        passed += 1
                # A gate that lets nothing through, or one that had nothing to stop, has not been tried.
                for rule, holds in (
                    ("something is accepted", counts["accepted"] or options.requests < 50),
                    ("something is rejected", options.requests - counts["accepted"] or options.requests < 50),
                ):
                    passed += bool(holds)
                    failures += [] if holds else [f"{mode}: {rule}"]
        failures += tap.odd
        log = gateway.output()
        failures += [f"the log holds `{secret}`" for secret in (KEY, "fill in the form") if secret in log]
    finally:
        if gateway:
            gateway.stop()
        subprocess.run(["bash", *server, "stop"], check=False)
        folder.cleanup()

    outcomes = ["accepted", *sorted({outcome for counts in table.values() for outcome in counts} - {"accepted"})]
    width = max(map(len, table))
    print(f"{'mode':{width}}  " + "  ".join(outcomes))
    for mode, counts in table.items():
        print(f"{mode:{width}}  " + "  ".join(f"{counts[outcome]:{len(outcome)}}" for outcome in outcomes))
    for failure in failures[:20]:
        print(f"FAILED {failure}")
    if len(failures) > 20:
        print(f"... and {len(failures) - 20} more")
    print(f"{time.monotonic() - started:.1f} s")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
