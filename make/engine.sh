#!/bin/sh
# engine.sh: succeeds if a Docker engine with Compose v2 answers within ten seconds. Otherwise it says why not.
set -eu
command -v docker >/dev/null || { echo "docker is not installed" >&2; exit 1; }
said=$(mktemp)
trap 'rm -f "$said"' EXIT
docker version --format '{{.Server.Version}}' >"$said" 2>&1 &
asking=$!
# macOS has no timeout(1).
(
	sleep 10 &
	trap 'kill $!; exit' TERM
	wait $!
	kill "$asking"
) >/dev/null 2>&1 &
watching=$!
answered=0
wait "$asking" || answered=$?
kill "$watching" 2>/dev/null || true
case $answered in
0) ;;
143) echo "the Docker engine does not answer within 10 s" >&2 && exit 1 ;;
*) echo "no Docker engine answers: $(tail -n 1 "$said")" >&2 && exit 1 ;;
esac
docker compose version >/dev/null 2>"$said" || { echo "docker compose is missing: $(tail -n 1 "$said")" >&2; exit 1; }
