# `just` lists the recipes. Continuous integration runs `.ci/run`, which needs none of this.

default:
    @just --list

# format and lints, as CI checks them
check:
    cargo fmt --check
    cargo clippy --all-targets --all-features --locked -- -D warnings

# unit and integration tests
test:
    cargo test --locked

# the gateway on its embedded backend, with a handful of requests through it
demo:
    cargo run --release --locked -- demo

# the gateway, with the embedded default or the configuration that is given
serve *ARGS:
    cargo run --release --locked -- serve {{ ARGS }}

# stock SDKs against the release build (python3, python2, node, or all)
sdk *SUITES:
    cargo build --release --locked
    tests/sdk/run.sh {{ SUITES }}

# a real model behind the release build
real *ARGS:
    cargo build --release --locked
    tests/real/run.py {{ ARGS }}

# side by side with nginx, haproxy and whatever else is named (see bench/README.md)
bench *ARGS="--peers direct,nginx,haproxy,portcullis":
    cargo build --release --locked
    cargo build --release --locked --manifest-path bench/mock-upstream/Cargo.toml
    python3 bench/run.py {{ ARGS }}

# mixed work through the release build for so many seconds, watched for leaks (see bench/README.md)
soak SECONDS="600":
    cargo build --release --locked
    python3 bench/soak.py {{ SECONDS }}

# the parts in memory: extraction, judging, splicing, event streams
bench-parts *ARGS:
    cargo bench --locked --bench '*' {{ ARGS }}

# one fuzz target, or each of them, for so many seconds
fuzz SECONDS="60" *TARGETS:
    .ci/fuzz {{ SECONDS }} {{ TARGETS }}

# licences, banned crates, sources
deny:
    cargo deny --locked check bans licenses sources

# the documentation, without a warning
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --locked

# everything, as CI runs it
ci:
    bash .ci/run
