#!/usr/bin/env bash
# A whole platform on this machine, from a clean clone: control plane, two front doors, three backends that workspaces
# share, two workspaces. Walks each workspace through its own door, rotates the signing key in the middle, kills a backend
# and a door under load, and checks that nothing was served across workspaces - not even straight at a backend with the
# doors' own secret -, that every finished call was metered once, and that every error was the contract's. Takes about a
# minute after the build; ends with `the platform holds`.
#
#   examples/platform.sh             builds the program first
#   RINGFENCE=PATH examples/platform.sh
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${RINGFENCE:-}" ]; then
  cargo build --quiet --manifest-path "$root/Cargo.toml" -p ringfence-cli
  target=$(cargo metadata --manifest-path "$root/Cargo.toml" --no-deps --format-version 1 |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
  RINGFENCE="$target/debug/ringfence"
fi
exec python3 "$root/examples/platform_walk.py" --ringfence "$RINGFENCE"
