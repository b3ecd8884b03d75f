#!/bin/sh
# test.sh [PART...]: unit tests (unit), then end-to-end tests in embedded mode (embedded), then in Docker mode if an
# engine is running (docker); or those parts alone. CODEFORGE_NO_SKIP=1 turns every skip into a failure.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}

# Packages that take long start first. Four run at a time, because many wait more than they compute.
long='./sandbox-image/cmd/sandboxd ./proxy/internal/egress ./mcp-server/cmd/mcp-server ./catalog
	./sandbox-image/internal/jail'
# The race detector makes computation ten times slower, and finds nothing where no goroutine runs. These packages
# compute.
compute='internal/growth internal/visible mcp-server/internal/argument mcp-server/internal/excerpt
	mcp-server/internal/patch proxy/internal/engine proxy/internal/scrub proxy/internal/swap'
# In two of them some tests have goroutines. They run with the race detector too, without those that compute for long.
streams='./proxy/internal/scrub ./proxy/internal/swap'
sums='^Test(Bodies|Bombs|ConstantMemory|Echoes|Oracle|UnclearLate|UnclearWithoutName)$'

# shellcheck disable=SC2046,SC2086
unit() {
	race=
	if [ "$($go env CGO_ENABLED)" = 1 ] && command -v "$($go env CC)" >/dev/null; then
		race=-race
	elif [ -n "${CODEFORGE_NO_SKIP:-}" ]; then
		echo "no C compiler: the race detector cannot run" >&2
		exit 1
	else
		echo "--- race detector: skipped, no C compiler"
	fi
	echo "--- unit tests ${race:+(race detector on)}"
	export GORACE=atexit_sleep_ms=0 # by default every program that ends waits for a second
	test="$go test -vet=off -timeout 15m -p 4" # make lint vets
	others=$($go list ./... | grep -vE "/($(echo $compute | tr ' ' '|'))\$")
	$test $race $long $others
	$test $(printf './%s ' $compute)
	[ -z "$race" ] || $test $race -skip "$sums" $streams
}

embedded() {
	echo "--- end to end, embedded mode"
	# The attacks take longest, so they start first.
	(cd e2e && CODEFORGE_E2E_MODE=embedded $go test -vet=off -count=1 -timeout 30m -p 3 ./attack . ./walk ./negative ./...)
}

docker_mode() {
	if ! { command -v docker >/dev/null && timeout 10 docker info >/dev/null 2>&1; }; then
		if [ -n "${CODEFORGE_NO_SKIP:-}" ]; then
			echo "--- end to end, Docker mode: no Docker engine answers, and skips are failures here" >&2
			exit 1
		fi
		echo "--- end to end, Docker mode: skipped, no Docker engine answers"
		return
	fi
	echo "--- end to end, Docker mode"
	# The packages that have tests in Docker mode. Their stacks take turns.
	(cd e2e && CODEFORGE_E2E_MODE=docker $go test -vet=off -count=1 -timeout 30m ./docker ./attack . ./servers ./walk)
	if [ -n "${CODEFORGE_ENGINE_RESTART:-}" ]; then
		echo "--- the Docker engine ends under the stack"
		(cd e2e && CODEFORGE_E2E_MODE=docker $go test -vet=off -count=1 -timeout 15m -run '^TestEngineRestart$' ./docker)
	fi
}

[ $# -gt 0 ] || set -- unit embedded docker
for part in "$@"; do
	case $part in
	unit | embedded) $part ;;
	docker) docker_mode ;;
	*)
		echo "test.sh: $part is no part: want unit, embedded or docker" >&2
		exit 2
		;;
	esac
done
