#!/bin/sh
# down.sh: stops whichever of the two modes is running here. State, skills and the CA stay.
set -eu
cd "$(dirname "$0")/.."
if [ -x bin/codeforge ] && [ -d .codeforge ]; then bin/codeforge down; fi
# Only the stack of this folder: another checkout's has the same project name.
if command -v docker >/dev/null && [ -n "$(timeout 10 docker ps -aq --filter "label=com.docker.compose.project.working_dir=$PWD" 2>/dev/null)" ]; then
	docker compose down
fi
