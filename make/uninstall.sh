#!/bin/sh
# uninstall.sh: lists everything that CodeForge has put on this machine from this folder, asks, and removes it. YES=1 does
# not ask. Your own files are kept: apis/ and .env.
set -eu
cd "$(dirname "$0")/.."
containers='' volumes='' networks='' images=''
if why=$(make/engine.sh 2>&1); then
	project=$(docker compose config 2>/dev/null | sed -n 's/^name: //p')
	project=${project:-codeforge}
	mine="label=com.docker.compose.project=$project"
	containers=$(docker ps -aq --filter "$mine")
	here=$(docker ps -aq --filter "$mine" --filter "label=com.docker.compose.project.working_dir=$PWD")
	if [ "$containers" != "$here" ]; then
		echo "Containers of another folder have the name of this project, $project: run make uninstall there." >&2
		exit 1
	fi
	volumes=$(docker volume ls -q --filter "$mine")
	networks=$(docker network ls -q --filter "$mine")
	images=$(docker images -q --filter "$mine" | sort -u) # those of earlier builds too
elif command -v docker >/dev/null; then
	echo "Docker is left as it is: $why" >&2
fi

found=
list() { # list WHAT ITEMS...: prints the items, if there are any.
	what=$1
	shift
	[ $# -gt 0 ] || return 0
	found=yes
	printf '  %-12s %s\n' "$what" "$*"
}
count() { # count WHAT ITEMS...
	what=$1
	shift
	[ $# = 0 ] || list "$what" "$#"
}
folders=
for folder in .codeforge bin .tools bench/out; do
	[ ! -e "$folder" ] || folders="$folders $folder"
done
# Lists of names without spaces.
# shellcheck disable=SC2086
{
	list folders $folders
	count containers $containers
	list volumes $volumes
	count networks $networks
	count images $images
}
[ -z "$volumes$images" ] || echo "Every folder on this machine whose Docker project is $project shares these volumes and images."
[ -n "$found" ] || { echo "CodeForge left no files to remove."; exit 0; }
echo "Skills, the sandbox's certificate authority, logs, and the logins and tokens of credentials are among it."
if [ -z "${YES:-}" ]; then
	[ -t 0 ] || { echo "Not removed: set YES=1 to remove everything without confirmation." >&2; exit 1; }
	printf 'Remove all of it? [y/N] '
	read -r answer
	case $answer in y | Y) ;; *) echo "Not removed." && exit 1 ;; esac
fi

if [ -x bin/codeforge ] && [ -d .codeforge ]; then bin/codeforge down; fi
# shellcheck disable=SC2086
{
	[ -z "$containers" ] || docker rm -f $containers >/dev/null
	[ -z "$volumes" ] || docker volume rm $volumes >/dev/null
	[ -z "$networks" ] || docker network rm $networks >/dev/null
	[ -z "$images" ] || docker rmi -f $images >/dev/null
	rm -rf $folders
}
cat <<END
Removed. What is left, because it is yours or shared with other projects:
  apis/ and .env in this folder, with your keys; then the folder itself
  the entry for codeforge in your MCP clients
END
[ -z "$images" ] || echo "  Docker's build cache and base images (docker builder prune, docker image prune -a)"
case $folders in *bin*) echo "  the caches of Go and npm (go clean -cache -modcache, npm cache clean --force)" ;; esac
