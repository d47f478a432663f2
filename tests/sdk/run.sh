#!/usr/bin/env bash
# Stock SDKs against the gateway, each in an environment of its own: two majors of `openai` for Python, one for Node.
#
#   tests/sdk/run.sh [python3 | python2 | node]...      all three by default
#
# PORTCULLIS             the binary (default: the release build)
# PORTCULLIS_TEST_CACHE  where the environments are kept (default: target/sdk)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
cache=${PORTCULLIS_TEST_CACHE:-target/sdk}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
openai_3=3.57.0 openai_2=2.54.0 pydantic=2.14.4

# The tests under one version of the SDK, in a virtual environment that is made once for it.
python() {
    local venv=$cache/openai-$1
    if [[ ! -e $venv/.ready ]]; then
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check "openai==$1" "pydantic==$pydantic"
        touch "$venv/.ready"
    fi
    python3 "$here/stack.py" "$venv/bin/python" "$here/test_python.py"
}

# Node finds packages beside the file that imports them, so the test is copied to where they are.
node_sdk() {
    local folder=$cache/node
    mkdir -p "$folder"
    if ! cmp -s "$here/package-lock.json" "$folder/.ready"; then
        cp "$here/package.json" "$here/package-lock.json" "$folder/"
        npm --prefix "$folder" ci --no-audit --no-fund --silent
        cp "$here/package-lock.json" "$folder/.ready"
    fi
    cp "$here/test_node.mjs" "$folder/"
    echo "openai $(node -p "require('$folder/package.json').dependencies.openai") on Node $(node --version)"
    python3 "$here/stack.py" node --test --test-reporter=spec "$folder/test_node.mjs"
}

[[ $# -gt 0 ]] || set -- python3 python2 node
failed=()
for suite in "$@"; do
    # In a shell of its own: after `||` bash would go on past a command that fails.
    set +e
    case $suite in
        python3) (set -e; python "$openai_3") ;;
        python2) (set -e; python "$openai_2") ;;
        node) (set -e; node_sdk) ;;
        *) echo "no suite \`$suite\`: python3, python2, node" >&2; exit 2 ;;
    esac
    code=$?
    set -e
    [[ $code -eq 0 ]] || failed+=("$suite")
done
if [[ ${#failed[@]} -gt 0 ]]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
