"""The gateways the benchmark knows: how each is started, and how a client talks to it.

Each is started the way its own documentation runs it in production, with logging low, bound to
loopback. Where a peer lives is told by variables, so that no path of one machine is written here.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

PEERS_DIR = Path(os.environ.get("PEERS_DIR", Path.home() / ".cache/peers"))
KEY = "sk-bench"

# What the structured-output cells ask for; the mock's content conforms to it.
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["title", "summary", "sentiment", "score", "items", "actions", "reviewer", "approved"],
    "properties": {
        "title": {"type": "string"},
        "summary": {"type": "string"},
        "sentiment": {"type": "string", "enum": ["positive", "neutral", "negative"]},
        "score": {"type": "number"},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "value", "tags"],
                "properties": {
                    "name": {"type": "string"},
                    "value": {"type": "integer"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
        "actions": {"type": "array", "items": {"type": "string"}},
        "reviewer": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name", "email"],
            "properties": {"name": {"type": "string"}, "email": {"type": "string"}},
        },
        "approved": {"type": "boolean"},
    },
}


@dataclass
class Peer:
    """One row of the table. `command` may hold {port}, {mock} (host:port) and {dir}."""

    name: str
    command: list[str] | None
    files: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    path: str = "/v1/chat/completions"
    model: str = "mock-model"
    headers: dict[str, str] = field(default_factory=dict)
    ready_s: float = 30
    port: int = 9200
    variant: bool = False  # left out unless named

    def program(self) -> str | None:
        """The program that must exist for this row to run."""
        return self.command[0] if self.command else None


def fill(text: str, names: dict) -> str:
    """The text with each {name} that is known replaced."""
    for name, value in names.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def tool(variable: str, default: Path | str) -> str:
    return os.environ.get(variable, str(default))


NGINX = """
user root;
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log crit;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  client_max_body_size 64m; client_body_buffer_size 2m;
  keepalive_requests 1000000000; keepalive_timeout 300s;
  upstream mock { server {mock}; keepalive 256; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:{port} backlog=4096;
    location / {
      proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off;
    }
  }
}
"""

HAPROXY = """
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  http-reuse always
  option http-no-delay
frontend in
  bind 127.0.0.1:{port}
  default_backend mock
backend mock
  server m1 {mock} maxconn 4096 pool-max-conn 512
"""

ENVOY = """
admin:
  address: { socket_address: { address: 127.0.0.1, port_value: 9209 } }
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: {port} } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          generate_request_id: false
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: { prefix: "/" }
                route: { cluster: mock, timeout: 0s }
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: mock
    type: STATIC
    connect_timeout: 5s
    circuit_breakers:
      thresholds: [{ max_connections: 4096, max_pending_requests: 4096, max_requests: 4096 }]
    load_assignment:
      cluster_name: mock
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: {mock_host}, port_value: {mock_port} } } }
"""

LITELLM = """
model_list:
  - model_name: mock-model
    litellm_params:
      model: openai/mock-model
      api_base: http://{mock}/v1
      api_key: sk-bench
litellm_settings:
  set_verbose: false
  enable_json_schema_validation: {validate}
  json_logs: true
  request_timeout: 600
general_settings:
  master_key: sk-bench
  disable_spend_logs: true
"""

LITELLM_RUST = """
model_list:
  - model_name: openai/*
    litellm_params:
      model: openai/*
      api_base: http://{mock}
      api_key: sk-bench
general_settings:
  master_key: sk-bench
"""

TENSORZERO = """
[gateway]
observability.enabled = false
[models.mock]
routing = ["mock"]
[models.mock.providers.mock]
type = "openai"
model_name = "mock-model"
api_base = "http://{mock}/v1/"
api_key_location = "env::OPENAI_API_KEY"
"""

# TensorZero's wheel carries its gateway; this starts it and waits.
TENSORZERO_START = """
import pathlib, sys, time
import tensorzero
gateway = tensorzero._start_http_gateway(config_file=sys.argv[1], clickhouse_url=None,
    postgres_url=None, valkey_url=None, async_setup=False)
pathlib.Path(sys.argv[2]).write_text(gateway.base_url)
while True:
    time.sleep(3600)
"""

FERRO = """
strategy:
  mode: single
targets:
  - virtual_key: openai
"""

ROLTER = """
[server]
require_auth = true
host = "127.0.0.1"
port = {port}
[[providers]]
name = "mock"
kind = "openai_compatible"
api_base = "http://{mock}"
[[routes]]
model = "mock-model"
strategy = "round_robin"
[[routes.targets]]
provider = "mock"
model = "mock-model"
[[virtual_keys]]
key = "sk-bench"
name = "bench"
models = []
"""

HUB = """
general:
  trace_content_enabled: false
providers:
  - key: openai
    type: openai
    api_key: sk-bench
    base_url: http://{mock}/v1
models:
  - key: mock-model
    type: mock-model
    provider: openai
pipelines:
  - name: default
    type: chat
    plugins:
      - model-router:
          models: [mock-model]
"""

PORTCULLIS = """
version: 1
listen: {address: "127.0.0.1:{port}"}
admin: {address: "127.0.0.1:0"}
auth: {mode: none}
telemetry: {log: warn}
backends:
  mock: {kind: openai, base_url: "http://{mock}/v1", api_key: sk-bench}
models:
  "*": {targets: [{backend: mock}]}
"""

PYTHON_QUIET = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}

TENSORZERO_FUNCTION = """
[functions.review]
type = "json"
output_schema = "schema.json"
[functions.review.variants.main]
type = "chat_completion"
model = "mock"
json_mode = "strict"
"""

FERRO_GUARD = """
plugins:
  - name: schema-guard
    type: guardrail
    stage: after_request
    enabled: true
    config:
      action: block
      schema: """ + json.dumps(SCHEMA) + "\n"

PORTKEY_GUARDED = {
    "provider": "openai",
    "custom_host": "http://{mock}/v1",
    "output_guardrails": [{"default.jsonSchema": {"schema": SCHEMA}, "deny": False}],
}

FERRO_COMMAND = [tool("FERROGW", PEERS_DIR / "bins/bin/ferrogw"), "serve"]
FERRO_ENV = {"GATEWAY_CONFIG": "{dir}/config.yaml", "PORT": "{port}", "OPENAI_API_KEY": KEY, "MASTER_KEY": KEY,
    "OPENAI_BASE_URL": "http://{mock}/v1", "RATE_LIMIT_RPS": "1000000", "RATE_LIMIT_BURST": "1000000", "LOG_LEVEL": "error", "FERRO_MODEL_CATALOG_TIMEOUT": "0",
    "ALLOW_UNAUTHENTICATED_PROXY": "true"}
TENSORZERO_COMMAND = [tool("TENSORZERO_PYTHON", PEERS_DIR / "tz/bin/python"), "{dir}/start.py", "{dir}/tensorzero.toml", "{dir}/url"]
TENSORZERO_ENV = {"OPENAI_API_KEY": KEY, "RUST_LOG": "error", "TENSORZERO_DISABLE_PSEUDONYMOUS_USAGE_ANALYTICS": "1"}
PORTKEY_COMMAND = [tool("NODE", "/usr/bin/node"), tool("PORTKEY", PEERS_DIR / "portkey/node_modules/@portkey-ai/gateway/build/start-server.js"),
    "--port={port}", "--headless"]
LITELLM_COMMAND = [tool("LITELLM", PEERS_DIR / "litellm/bin/litellm"), "--config", "{dir}/config.yaml", "--host", "127.0.0.1",
    "--port", "{port}", "--num_workers", "1", "--telemetry", "False"]
LITELLM_ENV = {"LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True", **PYTHON_QUIET}

# Relative to where the harness was started, as a shell would have it.
PORTCULLIS_BINARY = Path(tool("PORTCULLIS", Path(__file__).resolve().parent.parent / "target/release/portcullis")).absolute()

PEERS = [
    Peer("direct", None),
    Peer("portcullis", [str(PORTCULLIS_BINARY), "serve", "--config", "{dir}/portcullis.yaml"], {"portcullis.yaml": PORTCULLIS}),
    Peer(
        "nginx",
        [tool("NGINX", "/usr/sbin/nginx"), "-p", "{dir}", "-e", "{dir}/error.log", "-c", "{dir}/nginx.conf"],
        {"nginx.conf": NGINX},
    ),
    Peer("haproxy", [tool("HAPROXY", "/usr/sbin/haproxy"), "-db", "-f", "{dir}/haproxy.cfg"], {"haproxy.cfg": HAPROXY}),
    Peer(
        "envoy",
        [tool("ENVOY", PEERS_DIR / "bins/lib/python3.11/site-packages/envoy/_bin/envoy"),
         "-c", "{dir}/envoy.yaml", "--concurrency", "1", "-l", "error"],
        {"envoy.yaml": ENVOY},
    ),
    Peer(
        "ferrogw",
        FERRO_COMMAND,
        {"config.yaml": FERRO},
        FERRO_ENV,
        model="gpt-4o-mini",
    ),
    Peer(
        "rolter",
        [tool("ROLTER", PEERS_DIR / "bins/bin/rolter"), "gateway", "-c", "{dir}/rolter.toml"],
        {"rolter.toml": ROLTER},
        {"RUST_LOG": "error", "ROLTER_KEY_PEPPER": "bench-pepper"},
    ),
    # It speaks only the Responses API here, which it passes on: the mock gives it the same answers.
    Peer(
        "litellm-rust",
        [tool("LITELLM_RUST", PEERS_DIR / "target-lite/release/lite"), "serve", "--host", "127.0.0.1", "--port", "{port}",
         "--config", "{dir}/config.yaml"],
        {"config.yaml": LITELLM_RUST},
        {"RUST_LOG": "error"},
        path="/v1/responses",
        model="openai/mock-model",
    ),
    Peer(
        "traceloop-hub",
        [tool("HUB", PEERS_DIR / "target-hub/release/hub")],
        {"config.yaml": HUB},
        {"CONFIG_FILE_PATH": "{dir}/config.yaml", "HUB_MODE": "yaml", "PORT": "{port}", "RUST_LOG": "error"},
        path="/api/v1/chat/completions",
    ),
    Peer(
        "tensorzero",
        TENSORZERO_COMMAND,
        {"tensorzero.toml": TENSORZERO, "start.py": TENSORZERO_START},
        TENSORZERO_ENV,
        path="/openai/v1/chat/completions",
        model="tensorzero::model_name::mock",
    ),
    Peer(
        "portkey",
        PORTKEY_COMMAND,
        env={"NODE_ENV": "production"},
        headers={"x-portkey-provider": "openai", "x-portkey-custom-host": "http://{mock}/v1"},
    ),
    Peer(
        "litellm",
        LITELLM_COMMAND,
        {"config.yaml": LITELLM.replace("{validate}", "false")},
        LITELLM_ENV,
        ready_s=90,
    ),
    # The same gateways, made to check the answer against the schema, each in its own way.
    Peer(
        "litellm-validate",
        LITELLM_COMMAND,
        {"config.yaml": LITELLM.replace("{validate}", "true")},
        LITELLM_ENV,
        ready_s=90,
        variant=True,
    ),
    Peer(
        "portkey-validate",
        PORTKEY_COMMAND,
        env={"NODE_ENV": "production"},
        headers={"x-portkey-config": json.dumps(PORTKEY_GUARDED)},
        variant=True,
    ),
    Peer(
        "tensorzero-validate",
        TENSORZERO_COMMAND,
        {"tensorzero.toml": TENSORZERO + TENSORZERO_FUNCTION, "start.py": TENSORZERO_START, "schema.json": json.dumps(SCHEMA)},
        TENSORZERO_ENV,
        path="/openai/v1/chat/completions",
        model="tensorzero::function_name::review",
        variant=True,
    ),
    Peer(
        "ferrogw-validate",
        FERRO_COMMAND,
        {"config.yaml": FERRO + FERRO_GUARD},
        FERRO_ENV,
        model="gpt-4o-mini",
        variant=True,
    ),
]
