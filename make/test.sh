#!/bin/sh
# test.sh [PART...]: unit tests (unit), then end-to-end tests in embedded mode (embedded), then in Docker mode if an
# engine is running (docker); or those parts alone. CODEFORGE_NO_SKIP=1 turns every skip into a failure.
#
# A package that fails runs once more, alone. If it passes then, a test in it is unstable: that is a defect, which the end
# of the output names, but it does not hide what all others showed. A leak, a data race, a panic or a hanging test gets no
# second run.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# gotest FLAG... -- PACKAGE... runs go test.
# shellcheck disable=SC2086
gotest() {
	flags=
	while [ "$1" != -- ]; do
		flags="$flags $1"
		shift
	done
	shift
	if logged $flags "$@"; then
		return
	fi
	if grep -qE 'LEAK|DATA RACE|^panic: |(build|setup) failed\]' "$tmp/log"; then
		return 1
	fi
	failed=$(sed -n 's/^FAIL\t\([^ \t]*\)\t.*/\1/p' "$tmp/log")
	[ -n "$failed" ] || return 1
	echo "--- once more, alone:" $failed
	logged $flags -count=1 -p 1 $failed || return 1
	printf '%s\n' $failed >>"$tmp/unstable"
}

# logged runs go test and keeps what it prints in a file too.
logged() {
	echo 1 >"$tmp/status"
	{
		$go test "$@" 2>&1 && echo 0 >"$tmp/status"
	} | tee "$tmp/log"
	return "$(cat "$tmp/status")"
}

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
	unit_flags="-vet=off -timeout 15m -p 4" # make lint vets
	others=$($go list ./... | grep -vE "/($(echo $compute | tr ' ' '|'))\$")
	gotest $unit_flags $race -- $long $others
	gotest $unit_flags -- $(printf './%s ' $compute)
	[ -z "$race" ] || gotest $unit_flags $race -skip "$sums" -- $streams
}

embedded() {
	echo "--- end to end, embedded mode"
	# The attacks take longest, so they start first.
	export CODEFORGE_E2E_MODE=embedded
	cd e2e
	gotest -vet=off -count=1 -timeout 30m -p 3 -- ./attack . ./walk ./negative ./...
	cd ..
}

docker_mode() {
	if ! why=$(make/engine.sh 2>&1); then
		if [ -n "${CODEFORGE_NO_SKIP:-}" ]; then
			echo "--- end to end, Docker mode: $why, and skips are failures here" >&2
			exit 1
		fi
		echo "--- end to end, Docker mode: skipped, $why"
		return
	fi
	echo "--- end to end, Docker mode"
	export CODEFORGE_E2E_MODE=docker
	cd e2e
	# The packages that have tests in Docker mode. Their stacks take turns.
	gotest -vet=off -count=1 -timeout 30m -- ./docker ./attack . ./servers ./walk
	if [ -n "${CODEFORGE_ENGINE_RESTART:-}" ]; then
		echo "--- the Docker engine ends under the stack"
		gotest -vet=off -count=1 -timeout 15m -run '^TestEngineRestart$' -- ./docker
	fi
	cd ..
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
if [ -s "$tmp/unstable" ]; then
	echo "--- unstable, which is a defect: these failed, then passed alone"
	cat "$tmp/unstable"
fi
