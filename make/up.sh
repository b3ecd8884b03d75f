#!/bin/sh
# up.sh: starts CodeForge and returns when it is ready.
set -eu
cd "$(dirname "$0")/.."
. make/step.sh
mode=$(make/mode.sh)
echo "CodeForge: $mode mode${MODE:+ (MODE=$MODE)}"
if [ "$mode" = docker ]; then
	exec ./rebuild.sh
fi
command -v go >/dev/null || { echo "Go is not installed: embedded mode is built from source. Install Go 1.26 or newer, or start a Docker engine." >&2; exit 1; }
make/packages.sh bwrap=bubblewrap
step "building the binaries, and fetching Deno: a few minutes the first time"
"${MAKE:-make}" --no-print-directory -j2 build
step "starting"
bin/codeforge up --detach
step "ready"
