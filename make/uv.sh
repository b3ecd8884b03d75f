#!/bin/sh
# uv.sh TARGET: puts the pinned uv at TARGET, from its wheel, checked against sandbox-image/uv.version. CodeForge runs
# without it, but cannot install packages of PyPI then.
# MACHINE=aarch64|x86_64 fetches it for another machine than this one.
set -eu
target=$1
pins=$(dirname "$0")/../sandbox-image/uv.version
version=$(awk '$1 == "version" {print $2}' "$pins")
machine=${MACHINE:-$(uname -m)}
pin() { awk -v machine="$machine" -v field="$1" '$1 == machine {print $field}' "$pins"; }
if [ "$(uname -s)" != Linux ] || [ -z "$(pin 3)" ]; then exit 0; fi # embedded mode, which needs it, is for Linux
if [ -x "$target" ] && [ "$(cat "$target.sha256" 2>/dev/null)" = "$(pin 3)" ]; then exit 0; fi

without="MCP servers from PyPI cannot be installed; make uv tries again"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for python in python3 /usr/bin/python3 none; do
	if "$python" -m pip --version >"$dir/log" 2>&1; then break; fi
done
if [ "$python" = none ]; then
	echo "uv $version comes from PyPI, and python3 has no pip: $without" >&2
	exit 0
fi
echo "uv: fetching uv==$version from PyPI"
echo "uv==$version --hash=sha256:$(pin 3)" >"$dir/pin"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
	--platform "$(pin 2)" --dest "$dir" --requirement "$dir/pin" >"$dir/log" 2>&1 || {
	cat "$dir/log" >&2
	if grep -q "DO NOT MATCH THE HASHES" "$dir/log"; then exit 1; fi
	echo "pip could not fetch it (the lines above say why): $without" >&2
	exit 0
}
"$python" -m zipfile --extract "$dir"/uv-*.whl "$dir"
mkdir -p "$(dirname "$target")"
chmod 755 "$dir"/uv-*.data/scripts/uv
mv "$dir"/uv-*.data/scripts/uv "$target.part" && mv "$target.part" "$target"
pin 3 >"$target.sha256"
