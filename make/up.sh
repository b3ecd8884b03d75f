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
# Everything that is missing is reported at once, before minutes of building.
ready=yes
version=$(go env GOVERSION 2>/dev/null) || version=
case $version in
go1.2[1-9]* | go1.[3-9][0-9]* | go[2-9]* | devel*) ;; # since 1.21 Go fetches the newer one that go.work names
"")
	echo "Go is not installed: embedded mode is built from source. Install Go 1.26 or newer, or start a Docker engine." >&2
	ready=
	;;
*)
	echo "This Go is $version: embedded mode is built from source. Install Go 1.26 or newer, or start a Docker engine." >&2
	ready=
	;;
esac
make/packages.sh bwrap=bubblewrap || ready=
make/deno.sh .tools/deno check || ready=
[ -n "$ready" ] || exit 1
step "building the binaries, and fetching Deno: a few minutes the first time"
"${MAKE:-make}" --no-print-directory -j2 build
step "starting"
bin/codeforge up --detach
step "ready"
