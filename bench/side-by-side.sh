#!/usr/bin/env bash
# Measures this backend beside another one, in one run on this machine, and prints both with their ratio.
#
#   bench/side-by-side.sh http://127.0.0.1:18080 [options of `ringfence bench`, such as --rounds 7 --only print,lease]
#
# The other backend runs already; nothing is fetched. Ours is built and started here, on a port of its own, with the
# scientific image (built at the first start), and ended afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."

peer=${1:?the other backend\'s URL}
shift
cargo build --release --quiet --locked
out=$(mktemp)
target/release/ringfence serve --listen 127.0.0.1:0 --pool-size 8 --max-sessions 300 --log-level warn >"$out" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -f "$out"' EXIT
until grep -q '^ready' "$out"; do
  kill -0 "$server" || exit 1
  sleep 0.2
done
url=$(sed -n 's/^address: //p' "$out")
grep -E '^(tier|limits|image):' "$out"
target/release/ringfence bench --base-url "$url" --peer-url "$peer" "$@"
