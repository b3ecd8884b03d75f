#!/bin/sh
# mode.sh: prints "docker" or "embedded": the value of MODE, or else docker if an engine and Compose v2 are available. On
# standard error it says why not docker.
set -eu
cd "$(dirname "$0")/.."
case "${MODE:-}" in
docker | embedded) echo "$MODE" ;;
"")
	if make/engine.sh; then
		echo docker
	elif [ "$(uname -s)" = Linux ]; then
		echo embedded
	else
		echo "Start Docker: without it CodeForge needs Linux, and this is $(uname -s)." >&2
		exit 1
	fi
	;;
*)
	echo "MODE=$MODE: want docker or embedded" >&2
	exit 2
	;;
esac
