#!/bin/sh
# down.sh: stops CodeForge in whichever mode it runs here. State, skills and the CA are kept.
set -eu
cd "$(dirname "$0")/.."
if [ -x bin/codeforge ] && [ -d .codeforge ]; then bin/codeforge down; fi
# Only the stack of this folder: that of another checkout has the same project name.
if command -v docker >/dev/null && [ -n "$(timeout 10 docker ps -aq --filter "label=com.docker.compose.project.working_dir=$PWD" 2>/dev/null)" ]; then
	docker compose down
fi
