#!/bin/sh
# typescript.sh DIR: puts the pinned compiler of TypeScript into DIR, with the declarations of the language, from its npm
# package, checked against sandbox-image/typescript.version. CodeForge runs without it, and then checks no code.
# MACHINE=aarch64|x86_64 fetches it for another machine than this one.
set -eu
target=$1
pins=$(dirname "$0")/../sandbox-image/typescript.version
version=$(awk '$1 == "version" {print $2}' "$pins")

case "$(uname -s)-${MACHINE:-$(uname -m)}" in
Linux-x86_64) package=linux-x64 ;;
Linux-aarch64) package=linux-arm64 ;;
*) exit 0 ;; # embedded mode, which needs it, is for Linux
esac
want=$(awk -v p="$package" '$1 == p {print $2}' "$pins")
sum() { sha256sum "$1" | cut -d' ' -f1; }
if [ -x "$target/tsc" ] && [ -f "$target/lib.esnext.d.ts" ] && [ "$(sum "$target/tsc")" = "$want" ]; then exit 0; fi

without="code will run without a check of its types; make typescript tries again"
command -v npm >/dev/null || { echo "TypeScript $version comes from npm, and npm is not installed: $without" >&2; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
echo "TypeScript: fetching @typescript/typescript-$package@$version from npm"
(cd "$dir" && npm pack --silent "@typescript/typescript-$package@$version" >/dev/null && tar -xzf ./*.tgz) ||
	{ echo "npm could not fetch it (the lines above say why): $without" >&2; exit 0; }
have=$(sum "$dir/package/lib/tsc")
if [ "$have" != "$want" ]; then
	echo "TypeScript: @typescript/typescript-$package@$version has checksum $have, want $want. Not installed." >&2
	exit 1
fi
rm -f "$dir"/package/lib/lib.dom* "$dir"/package/lib/lib.webworker* "$dir"/package/lib/lib.scripthost*
chmod -R u+w,a+rX "$dir/package"
rm -rf "$target.part"
mkdir -p "$(dirname "$target")"
cp -R "$dir/package/lib" "$target.part"
rm -rf "$target"
mv "$target.part" "$target"
