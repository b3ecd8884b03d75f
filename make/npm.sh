#!/bin/sh
# npm.sh DIR PACKAGE@VERSION...: installs npm packages for tests into DIR/node_modules, unless they are installed already.
# npm installs them once for all checkouts, in ~/.cache/codeforge-tools. DIR gets hard links, or copies if links cannot be.
set -eu
dir=$1
shift
mkdir -p "$dir"
wanted="$*"
if command -v flock >/dev/null; then # tests of several packages may run this at the same time
	exec 9>"$dir/.lock"
	flock 9
fi
[ "$(cat "$dir/.installed" 2>/dev/null)" != "$wanted" ] || exit 0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/codeforge-tools/npm/$(printf %s "$wanted" | cksum | tr ' ' -)
mkdir -p "$cache"
if command -v flock >/dev/null; then # other checkouts may run this at the same time
	exec 8>"$cache/.lock"
	flock 8
fi
if ! command -v npm >/dev/null; then
	echo "npm is missing" >&2
	exit 1
fi
if [ "$(cat "$cache/.installed" 2>/dev/null)" != "$wanted" ]; then
	rm -rf "$cache/node_modules" "$cache/.installed"
	npm install --prefix "$cache" --no-audit --no-fund --no-save --loglevel=error "$@"
	echo "$wanted" >"$cache/.installed"
fi
rm -rf "$dir/node_modules" "$dir/.installed"
cp -al "$cache/node_modules" "$dir/node_modules" 2>/dev/null || {
	rm -rf "$dir/node_modules"
	cp -Rp "$cache/node_modules" "$dir/node_modules"
}
echo "$wanted" >"$dir/.installed"
