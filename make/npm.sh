#!/bin/sh
# npm.sh DIR PACKAGE@VERSION...: installs npm packages for tests into DIR/node_modules, unless they are installed already.
set -eu
dir=$1
shift
mkdir -p "$dir"
if command -v flock >/dev/null; then # tests of several packages may run this at the same time
	exec 9>"$dir/.lock"
	flock 9
fi
wanted="$*"
[ "$(cat "$dir/.installed" 2>/dev/null)" != "$wanted" ] || exit 0
if ! command -v npm >/dev/null; then
	echo "npm is missing" >&2
	exit 1
fi
npm install --prefix "$dir" --no-audit --no-fund --no-save --loglevel=error "$@"
echo "$wanted" >"$dir/.installed"
