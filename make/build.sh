#!/bin/sh
# build.sh LDFLAGS FOLDER...: builds the programs in these folders into bin/. In a terminal a line shows the progress.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
ldflags=$1
shift
mkdir -p bin
. make/goflags.sh
build() { "$go" build -ldflags "$ldflags" -o bin/ "$@"; }

# With an empty cache, modules are fetched while most of the standard library is compiled.
"$go" build net/http &
beside=$!
trap 'kill "$beside" 2>/dev/null || true' EXIT
if [ ! -t 1 ]; then
	build "$@"
	exit
fi
failed=$(mktemp)
trap 'kill "$beside" 2>/dev/null || true; rm -f "$failed"' EXIT
{ build -v "$@" 2>&1 || echo failed >"$failed"; } | awk '
	function show(text) { printf "\r\033[K%s", substr(text, 1, 78); fflush() }
	/^go: downloading / { show("  fetching " $3); next }
	/^[^ #]+$/ { show("  compiled " ++n ": " $0); next }
	{ printf "\r\033[K"; print; fflush() }
	END { printf "\r\033[K" }'
[ ! -s "$failed" ]
