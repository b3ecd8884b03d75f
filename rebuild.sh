#!/bin/sh
# rebuild.sh [--no-cache]: builds the images from the tree as it is and replaces only what changed. Skills, the CA and
# apis/ stay. It ends when everything is healthy, and says how to connect.
set -eu
cd "$(dirname "$0")"

usage() {
	echo "usage: ./rebuild.sh [--no-cache]   (build everything anew, also what Docker has kept)"
}
cache=
case "${1:-}" in
"") ;;
--no-cache) cache=--no-cache ;;
-h | --help) usage && exit 0 ;;
*) usage >&2 && exit 2 ;;
esac
[ $# -le 1 ] || { usage >&2; exit 2; }

docker compose version >/dev/null 2>&1 || {
	echo "docker compose is missing: install Docker Engine with the Compose plugin, or Docker Desktop." >&2
	exit 1
}
docker info >/dev/null 2>&1 || {
	echo "The Docker engine does not answer. Start it (Docker Desktop, or: sudo systemctl start docker), and check that you may use it." >&2
	[ "$(uname -s)" != Linux ] || echo "Or run without Docker: MODE=embedded make up" >&2
	exit 1
}
if [ -z "${CODEFORGE_VERSION:-}" ]; then
	CODEFORGE_VERSION=$(git describe --tags --always --dirty 2>/dev/null || echo dev)
	export CODEFORGE_VERSION
fi

echo "Building the images (version $CODEFORGE_VERSION). What runs goes on running."
docker compose build $cache

echo "Replacing the services whose image or configuration changed."
docker compose up -d --no-build --remove-orphans --wait --wait-timeout 120 || {
	echo >&2
	echo "Not everything became healthy. If a port is taken, set another MCP_PORT in .env; else the last lines of each service say why:" >&2
	docker compose ps -a >&2
	docker compose logs --tail 15 >&2
	exit 1
}

# The variables are the template's.
# shellcheck disable=SC2016
port=$(docker inspect -f '{{range $p, $at := .NetworkSettings.Ports}}{{range $at}}{{.HostPort}}{{end}}{{end}}' "$(docker compose ps -q mcp-server)")
url=http://localhost:$port/mcp
name=$(docker inspect -f '{{.Name}}' "$(docker compose ps -q mcp-server)")
name=${name#/}
cat <<END

CodeForge $CODEFORGE_VERSION is ready: $url

Claude Code:     claude mcp add --transport http codeforge $url
Claude Desktop:  {"mcpServers": {"codeforge": {"command": "npx", "args": ["-y", "mcp-remote", "$url"]}}}
  without Node:  {"mcpServers": {"codeforge": {"command": "docker", "args": ["exec", "-i", "$name", "codeforge", "stdio"]}}}
By hand:         echo 'console.log(6 * 7)' | docker compose exec -T mcp-server codeforge run -
Logs:            docker compose logs -f
END
