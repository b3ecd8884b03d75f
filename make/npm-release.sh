#!/bin/sh
# npm-release.sh VERSION ARCHIVES FILES OUT: makes the folders of the npm packages of a release in OUT, ready for npm
# publish. ARCHIVES has the archives of .goreleaser.yaml, FILES the output of release.sh. OUT/codeforge-mcp starts the
# program of the package for its platform, such as OUT/linux-x64. Platforms without an archive are left out.
set -eu
cd "$(dirname "$0")/.."
version=${1#v} archives=$2 files=$3 out=$4
deno=$(awk '$1 == "version" {print $2}' sandbox-image/deno.version)
fields='"license": "MIT",
  "homepage": "https://github.com/codeforge-mcp/codeforge",
  "repository": {"type": "git", "url": "git+https://github.com/codeforge-mcp/codeforge.git"}'

# make_platform GOOS GOARCH OS CPU: the names of Go, then those of Node.
make_platform() {
	archive=$archives/codeforge_${version}_$1_$2
	dir=$out/$3-$4
	if [ -f "$archive.tar.gz" ]; then
		mkdir -p "$dir/lib"
		tar -xzf "$archive.tar.gz" -C "$dir/lib" --strip-components=1
	elif [ -f "$archive.zip" ]; then
		mkdir -p "$dir"
		python3 -m zipfile -e "$archive.zip" "$dir/unpacked"
		mv "$dir"/unpacked/*/ "$dir/lib"
		rmdir "$dir/unpacked"
	else
		return 0
	fi
	rm -rf "$dir/lib/docs" "$dir/lib/man" "$dir/lib/completions" "$dir/lib/docker-shim"
	needs=''
	if [ "$1" = linux ]; then
		for name in typescript uv; do
			[ ! -e "$files/$2/$name" ] || cp -R "$files/$2/$name" "$dir/lib/$name"
		done
		needs=",
  \"libc\": [\"glibc\"],
  \"dependencies\": {\"@deno/linux-$4-glibc\": \"$deno\"}"
	fi
	cat >"$dir/package.json" <<JSON
{
  "name": "@codeforge-mcp/$3-$4",
  "version": "$version",
  "description": "CodeForge for $3 on $4: install codeforge-mcp, which chooses the package",
  $fields,
  "os": ["$3"],
  "cpu": ["$4"]$needs
}
JSON
	optional="${optional:+$optional, }\"@codeforge-mcp/$3-$4\": \"$version\""
}

rm -rf "$out"
optional=''
make_platform linux amd64 linux x64
make_platform linux arm64 linux arm64
make_platform darwin amd64 darwin x64
make_platform darwin arm64 darwin arm64
make_platform windows amd64 win32 x64
make_platform windows arm64 win32 arm64
[ -n "$optional" ] || { echo "npm-release.sh: $archives has no archive codeforge_${version}_OS_ARCH" >&2; exit 1; }
mkdir -p "$out/codeforge-mcp"
cp npm/codeforge.js npm/README.md LICENSE "$out/codeforge-mcp/"
cat >"$out/codeforge-mcp/package.json" <<JSON
{
  "name": "codeforge-mcp",
  "version": "$version",
  "description": "Self-hosted MCP server that runs a model's code without giving it keys",
  $fields,
  "keywords": ["mcp", "sandbox", "code-mode", "agent"],
  "engines": {"node": ">=12"},
  "bin": {"codeforge": "codeforge.js", "codeforge-mcp": "codeforge.js"},
  "optionalDependencies": {$optional}
}
JSON
echo "npm packages of $version: $out"
