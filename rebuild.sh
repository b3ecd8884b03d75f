#!/bin/sh
# rebuild.sh [--no-cache]: builds the images from the working tree and replaces only the services that changed. Skills, the
# CA and apis/ are kept. It returns when everything is healthy, and prints how to connect.
# In the folder of a release, which has a file VERSION, this is up.sh and fetches the images.
set -eu
cd "$(dirname "$0")"
. make/step.sh

usage() {
	if [ -f VERSION ]; then
		echo "usage: ./up.sh"
	else
		echo "usage: ./rebuild.sh [--no-cache]   (--no-cache: rebuild everything, without Docker's cache)"
	fi
}
cache=
case "${1:-}" in
"") ;;
--no-cache) cache=--no-cache ;;
-h | --help) usage && exit 0 ;;
*) usage >&2 && exit 2 ;;
esac
[ $# -le 1 ] || { usage >&2; exit 2; }

make/engine.sh || {
	echo "Install Docker Engine with the Compose plugin, or Docker Desktop; start it (or: sudo systemctl start docker); and check that you may use it." >&2
	[ "$(uname -s)" != Linux ] || [ -f VERSION ] || echo "Or run without Docker: MODE=embedded make up" >&2
	exit 1
}
if [ -f VERSION ]; then
	CODEFORGE_VERSION=$(cat VERSION)
elif [ -z "${CODEFORGE_VERSION:-}" ]; then
	CODEFORGE_VERSION=$(git describe --tags --always --dirty 2>/dev/null || echo dev)
	export CODEFORGE_VERSION
fi

# Packages of MCP servers come from the registry that npm's configuration names, unless .env names another one.
if [ -z "${PACKAGE_REGISTRY:-}" ] && ! grep -qs '^PACKAGE_REGISTRY=.' .env && command -v npm >/dev/null &&
	grep -qs '"package"' "${CODEFORGE_APIS:-apis}"/*/config.json; then
	PACKAGE_REGISTRY=$(npm config get registry 2>/dev/null) && export PACKAGE_REGISTRY &&
		step "Packages of MCP servers come from the registry that npm names. docker compose up alone does not ask npm: write PACKAGE_REGISTRY into .env if you use that too."
fi

# A folder may have become a link, or have keys now.
if [ -e folders.json ] && [ -x bin/codeforge ]; then
	bin/codeforge folder list >/dev/null || {
		echo "Not started. bin/codeforge folder rm NAME removes a folder." >&2
		exit 1
	}
fi

# Compose would replace the containers of another folder that have the same name.
project=$(docker compose config 2>/dev/null | sed -n "s/^name: //p")
other=$(docker ps -a --filter "label=com.docker.compose.project=${project:-codeforge}" \
	--format '{{.Label "com.docker.compose.project.working_dir"}}' | grep -vxF "$PWD" | sort -u | head -n 1)
if [ -n "$other" ]; then
	echo "The stack ${project:-codeforge} is that of $other. Run docker compose down there; or for two at once set COMPOSE_PROJECT_NAME here in .env (docs/guides/backup-and-upgrade.md)." >&2
	exit 1
fi

# Code, which has no user of this machine, reads it. A clone made with umask 077 or 027 has it closed. Where this is not
# possible, and is needed, the sandbox says so.
chmod a+r sandbox-image/resolv.conf 2>/dev/null || :

if [ -f VERSION ]; then
	step "Fetching the images of $CODEFORGE_VERSION, some 250 MB the first time. Running services keep running meanwhile."
	docker compose pull --quiet
else
	step "Building the images (version $CODEFORGE_VERSION): a few minutes the first time. Running services keep running meanwhile."
	docker compose build $cache
fi

# Compose stops the services that run before it knows that the settings are wrong.
docker compose run --rm --no-deps -T settings || {
	echo "CodeForge was not replaced: the old version still runs." >&2
	exit 1
}

step "Replacing the services whose image or configuration changed."
docker compose up -d --no-build --remove-orphans --wait --wait-timeout 120 || {
	echo >&2
	echo "Not every service became healthy. If a port is in use, set another MCP_PORT in .env; if an address pool overlaps, another SANDBOX_SUBNET; if a container name is in use, docker compose down first. Otherwise see the last lines of each service:" >&2
	docker compose ps -a >&2
	docker compose logs --tail 15 >&2
	exit 1
}

step "Every service is healthy."
echo
echo "CodeForge $CODEFORGE_VERSION is ready."
make/host.sh >/dev/null || {
	how="make cli builds it if Go is installed"
	[ ! -f VERSION ] || how="Its archive for $(uname -s), or npm install -g codeforge-mcp, has the command codeforge"
	echo "bin/codeforge could not be written. $how." >&2
}
# The container's codeforge prints how to connect, with the header if MCP_AUTH_TOKEN is set.
docker compose exec -T mcp-server codeforge connect </dev/null
echo "  commands        bin/codeforge help"
echo "  logs            docker compose logs -f"
