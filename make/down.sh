#!/bin/sh
# down.sh: stops CodeForge in whichever mode it runs here. State, skills and the CA are kept.
set -eu
cd "$(dirname "$0")/.."
stopped=
if [ -x bin/codeforge ] && [ -d .codeforge ]; then
	bin/codeforge down
	stopped=yes
fi
if why=$(make/engine.sh 2>&1); then
	# Only the stack of this folder: that of another checkout has the same project name.
	containers=$(docker ps -aq --filter "label=com.docker.compose.project.working_dir=$PWD")
	if [ -n "$containers" ]; then
		docker compose down
		stopped=yes
	fi
elif command -v docker >/dev/null; then
	echo "The containers were not stopped: $why." >&2
fi
[ -n "$stopped" ] || echo "CodeForge does not run in $PWD."
