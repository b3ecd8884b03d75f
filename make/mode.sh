#!/bin/sh
# mode.sh: prints "docker" or "embedded": the value of MODE, or else docker if an engine and Compose v2 are available.
set -eu
case "${MODE:-}" in
docker | embedded) echo "$MODE" ;;
"")
	if command -v docker >/dev/null && timeout 10 docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; then
		echo docker
	else
		echo embedded
	fi
	;;
*)
	echo "MODE=$MODE: want docker or embedded" >&2
	exit 2
	;;
esac
