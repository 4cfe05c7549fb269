#!/usr/bin/env bash
# What the front door costs: the same works straight at a server and through a gate in front of it, in one run.
#
#   bench/gate.sh [options of `ringfence bench`, such as --rounds 7]
#
# Shows `print` (one call after another: p50 and p99, of which the difference is what the gate adds) and `execs` (as many
# calls as 8 clients can: the ratio is the throughput that is left). Usage is recorded, to a spool that nobody empties.
# Server and gate are built and started here, on ports of their own, with the bare image, and ended afterwards.
# PROFILE=debug measures an unoptimized build, to try the script.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${PROFILE:-release}
flag=--release
[ "$profile" = debug ] && flag=
# shellcheck disable=SC2086
cargo build $flag --quiet --locked -p ringfence-cli
# shellcheck disable=SC2086
cargo build $flag --quiet --locked -p ringfence-grant --example issue
target=${CARGO_TARGET_DIR:-target}/$profile
work=$(mktemp -d)
pids=()
end() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap end EXIT

# Waits until a file has a line, as long as the process that writes it lives.
line() {
  until grep -q "$2" "$1"; do
    kill -0 "$3" || { cat "$1"* >&2; exit 1; }
    sleep 0.1
  done
}

"$target/ringfence" serve --listen 127.0.0.1:0 --image bare --state-dir "$work/state" --pool-size 8 --log-level warn \
  >"$work/server" 2>"$work/server.log" &
pids+=($!)
line "$work/server" '^ready' $!
direct=$(sed -n 's/^address: //p' "$work/server")

head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n' >"$work/id-keys"
chmod 600 "$work/id-keys"
grant=$("$target/examples/issue" "$work/key.json" "$work/keys.json" https://control.example https://gate.example bench)
"$target/ringfence" gate --listen 127.0.0.1:0 --issuer https://control.example --audience https://gate.example \
  --keys "$work/keys.json" --id-keys-file "$work/id-keys" --backend "b1=$direct" --log-level warn \
  --usage-spool "$work/spool" --usage-url http://127.0.0.1:9/v1/usage >"$work/gate" 2>"$work/gate.log" &
pids+=($!)
line "$work/gate" 'listens on' $!
gate=$(sed -n 's/.*listens on //p' "$work/gate")
until curl -sf "$gate/ready" >/dev/null; do sleep 0.1; done

echo "first: through the gate at $gate; second: straight at the server at $direct"
# The server asks for no credential, and passes over the grant.
RINGFENCE_TOKEN=$grant "$target/ringfence" bench --base-url "$gate" --peer-url "$direct" --only print,lease,execs "$@"
