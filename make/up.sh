#!/bin/sh
# up.sh: starts CodeForge and returns when it is ready.
set -eu
cd "$(dirname "$0")/.."
mode=$(make/mode.sh)
echo "CodeForge: $mode mode${MODE:+ (MODE=$MODE)}"
if [ "$mode" = docker ]; then
	exec ./rebuild.sh
fi
command -v go >/dev/null || { echo "Go is not installed: embedded mode is built from source. Install Go 1.26 or newer, or start a Docker engine." >&2; exit 1; }
make/packages.sh bwrap=bubblewrap
"${MAKE:-make}" --no-print-directory -j2 build
exec bin/codeforge up --detach
