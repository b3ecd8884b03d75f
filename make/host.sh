#!/bin/sh
# host.sh: puts codeforge for this machine into bin/, without Go: out of the running container on Linux, compiled by Docker
# on other systems. It finds the stack in Docker, so commands are the same in both modes.
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
system=$(uname -s | tr '[:upper:]' '[:lower:]')
if [ "$system" = linux ]; then
	docker compose cp mcp-server:/usr/local/bin/codeforge "$tmp/codeforge"
elif [ -f VERSION ]; then
	exit 1 # the folder of a release has no source
else
	docker build --quiet --target host --build-arg "HOST_OS=$system" --build-arg "VERSION=${CODEFORGE_VERSION:-dev}" \
		--output "$tmp" -f mcp-server/Dockerfile .
fi
mkdir -p bin
mv -f "$tmp/codeforge" bin/codeforge # a running codeforge keeps its old file
