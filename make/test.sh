#!/bin/sh
# test.sh: unit tests, then end-to-end tests in embedded mode, then in Docker mode if an engine is running.
# CODEFORGE_NO_SKIP=1 turns every skip into a failure.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
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
# The scan engine has no goroutine, and the race detector makes its tests ten times slower.
engine=github.com/codeforge-mcp/codeforge/proxy/internal/engine
# shellcheck disable=SC2046
$go test $race -timeout 15m $($go list ./... | grep -vx "$engine")
$go test -timeout 15m "$engine"

echo "--- end to end, embedded mode"
(cd e2e && CODEFORGE_E2E_MODE=embedded $go test -count=1 -timeout 30m ./...)

if command -v docker >/dev/null && timeout 10 docker info >/dev/null 2>&1; then
	echo "--- end to end, Docker mode"
	(cd e2e && CODEFORGE_E2E_MODE=docker $go test -count=1 -timeout 30m ./...)
	if [ -n "${CODEFORGE_ENGINE_RESTART:-}" ]; then
		echo "--- the Docker engine ends under the stack"
		(cd e2e && CODEFORGE_E2E_MODE=docker $go test -count=1 -timeout 15m -run '^TestEngineRestart$' ./docker)
	fi
elif [ -n "${CODEFORGE_NO_SKIP:-}" ]; then
	echo "--- end to end, Docker mode: no Docker engine answers, and skips are failures here" >&2
	exit 1
else
	echo "--- end to end, Docker mode: skipped, no Docker engine answers"
fi
