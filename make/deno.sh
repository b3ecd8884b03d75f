#!/bin/sh
# deno.sh TARGET: puts the pinned Deno at TARGET, from its npm package, checked against sandbox-image/deno.version.
# deno.sh TARGET check: fails, and says why, if it could not do that on this machine.
# MACHINE=aarch64|x86_64 fetches it for another machine than this one.
set -eu
target=$1
pins=$(dirname "$0")/../sandbox-image/deno.version
version=$(awk '$1 == "version" {print $2}' "$pins")

case "$(uname -s)-${MACHINE:-$(uname -m)}" in
Linux-x86_64) package=linux-x64-glibc ;;
Linux-aarch64) package=linux-arm64-glibc ;;
*)
	echo "embedded mode needs Linux on x86_64 or arm64; this is $(uname -sm). Use Docker: docker compose up -d --build" >&2
	exit 1
	;;
esac
want=$(awk -v p="$package" '$1 == p {print $2}' "$pins")

sum() { sha256sum "$1" | cut -d' ' -f1; }
current() { # is the file at TARGET the pinned Deno?
	[ -x "$target" ] || return 1
	if [ "$want" = - ]; then "$target" --version | grep -q "^deno $version "; else [ "$(sum "$target")" = "$want" ]; fi
}

if [ -n "${DENO_PATH:-}" ]; then
	"$DENO_PATH" --version >/dev/null || { echo "DENO_PATH=$DENO_PATH does not run" >&2; exit 1; }
	[ "${2:-}" = check ] || echo "Deno: $DENO_PATH (DENO_PATH)"
	exit 0
fi
current && exit 0
command -v npm >/dev/null || {
	echo "Deno $version comes from npm, and npm is not installed. Install Node.js with npm, or set DENO_PATH to a Deno $version of yours." >&2
	exit 1
}
[ "${2:-}" != check ] || exit 0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
echo "Deno: fetching @deno/$package@$version from npm"
(cd "$dir" && npm pack --silent "@deno/$package@$version" >/dev/null && tar -xzf ./*.tgz --strip-components=1 package/deno) ||
	{ echo "npm could not fetch @deno/$package@$version (the lines above say why). Set DENO_PATH to a Deno $version of yours." >&2; exit 1; }
if [ "$want" = - ]; then
	echo "Deno: no checksum is pinned for $package; npm's integrity check was the only one"
elif [ "$(sum "$dir/deno")" != "$want" ]; then
	echo "Deno: @deno/$package@$version has checksum $(sum "$dir/deno"), want $want. Not installed." >&2
	exit 1
fi
mkdir -p "$(dirname "$target")"
chmod 755 "$dir/deno"
mv "$dir/deno" "$target.part" && mv "$target.part" "$target"
