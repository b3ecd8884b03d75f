#!/usr/bin/env bash
# test.sh [PART...]: unit tests (unit), end-to-end tests in embedded mode (embedded), and in Docker mode if an engine is
# running (docker). Without a PART it runs all, those of Docker mode in parallel with the others, because they wait more
# than they compute. CODEFORGE_NO_SKIP=1 turns every skip into a failure. $CODEFORGE_KUBERNETES, if set, is the command
# that runs the tests on Kubernetes: it begins when the unit tests are done. Attacks are mounted in embedded mode first,
# then in Docker and on Kubernetes in parallel.
#
# CODEFORGE_TEST_ALL=1 (make test-all) runs all unit tests with the race detector, each test in all modes in which it
# exists, and then fuzz targets for ten minutes. Without it, the race detector and the modes are used where they can find
# something.
#
# Each call of go test prints the processor seconds that its programs took. The last line says for how many seconds
# processors were idle, and how many the containers of Docker took.
#
# A test that fails runs once more, alone, after everything else. If it passes then, it is unstable, which is a defect: the
# end of the output names it, but the other tests count. A leak, a data race, a panic or a hanging test gets no second run.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
tmp=$(mktemp -d)
began=$SECONDS
jobs=''
set -m # each job is a process group, which is killed with this script
# shellcheck disable=SC2154
trap 'for job in $jobs; do kill -- "-$job" 2>/dev/null || true; done; rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

. make/goflags.sh

all=${CODEFORGE_TEST_ALL:-}
[ -z "$all" ] || export CODEFORGE_LONG_RUN=290 # seconds: TestLongRuns' runs of five minutes
TIMEFORMAT='--- processor seconds: %U + %S'
idle() { awk -v ticks="$(getconf CLK_TCK)" '$1 == "cpu" { print int(($5 + $6) / ticks) }' /proc/stat 2>/dev/null || echo 0; }
# containers prints the processor seconds of all containers of Docker, also of those that are gone: by cgroup v1, or v2.
containers() {
	awk '{ print int($1 / 1e9) }' /sys/fs/cgroup/cpuacct/docker/cpuacct.usage 2>/dev/null ||
		awk '$1 == "usage_usec" { print int($2 / 1e6) }' /sys/fs/cgroup/docker/cpu.stat 2>/dev/null || echo 0
}
idle_before=$(idle) containers_before=$(containers)
heading() { printf -- '--- [%4d s] %s\n' $((SECONDS - began)) "$*"; }

# gotest FLAG... -- PACKAGE... runs go test in the current directory, and prints the time of each package. It records tests
# that fail, and packages that fail without a failed test, for again.
gotest() {
	local log rows status=0 flags=()
	log=$(mktemp "$tmp/log.XXXXXX")
	while [ "$1" != -- ]; do
		flags+=("$1")
		shift
	done
	shift
	# A shell of its own, because time also counts children that ended meanwhile: calls of gotest in the background.
	(time logged "$log" "${flags[@]}" "$@") || status=1
	[ $status != 0 ] || return 0
	if grep -qE 'LEAK|DATA RACE|^panic: |(build|setup) failed\]' "$log"; then
		return 1
	fi
	awk '/^--- FAIL: / { names = names (names ? "|" : "") $3 }
		/^(ok|FAIL)\t/ { if ($1 == "FAIL") print $2, names ? "^(" names ")$" : ""; names = "" }' "$log" >"$log.failed"
	[ -s "$log.failed" ] || return 1
	{
		declare -p flags
		declare -p CGO_ENABLED PWD
		if [ -n "${CODEFORGE_E2E_MODE:-}" ]; then declare -p CODEFORGE_E2E_MODE; fi
		# Of the attack suite only the rows that failed.
		rows=$(sed -n 's/^ *attack_test.go:[0-9]*: once more: //p' "$log")
		if [ -n "$rows" ]; then printf 'export CODEFORGE_ATTACK=%q\n' "$rows"; fi
	} >"$log.again"
}

# logged LOG ARGUMENT... runs go test and copies its output to a file. Linking without symbols takes a quarter
# less time.
logged() {
	local log=$1
	shift
	$go test -ldflags='-s -w' "$@" 2>&1 | tee "$log"
}

# again runs the failed tests once more, one package at a time.
again() {
	local how package names status=0
	for how in "$tmp"/*.again; do
		[ -e "$how" ] || continue
		while read -r package names; do
			heading "once more, alone: $package $names"
			if (
				# shellcheck disable=SC1090 # gotest wrote it
				. "$how"
				cd "$PWD" && logged "$how.log" "${flags[@]}" -count=1 ${names:+-run "$names"} "$package"
			); then
				{
					echo "$package $names"
					grep -aE '^ +[a-z_0-9]+\.go:[0-9]+: ' "${how%.again}" | cut -c1-300 | sed 8q || true # what it said
				} >>"$tmp/unstable"
			else
				status=1
			fi
		done <"${how%.again}.failed"
	done
	return $status
}

# The race detector makes computation ten times slower. It is for packages that start goroutines, and for packages with
# locks whose tests start some: finds_races selects both. The packages in plain have goroutines, but mostly compute, or
# their tests start programs that are built without it. The slowest comes first.
plain='./sandbox-image/cmd/sandboxd ./proxy/cmd/egress-proxy ./internal/costtest ./proxy/internal/multisearch ./cli/internal/openapi ./cli/cmd/codeforge'
starts='^[[:space:]]*(defer )?go [a-zA-Z(]|\.(Go|Parallel|RunParallel|AfterFunc|Listen|Serve)\(|httptest\.|synctest\.'
locks='sync\.|atomic\.|chan '
finds_races() { # DIR
	local product
	product=$(find "$1" -maxdepth 1 -name '*.go' ! -name '*_test.go')
	[ -n "$product" ] || return 1
	# shellcheck disable=SC2086
	grep -qE "$starts" $product || { grep -qE "$locks" $product && grep -qE "$starts" "$1"/*_test.go; }
}
# Some tests of the other packages run without it: those that call package costtest, which measures one goroutine, and
# these, which compute for long in one goroutine or in programs that are built without it.
sums='AmbiguousBody|AnswersAtOnce|Attack(Bodies|Carried|Pass)|Bodies|Bombs|CallBodies|CallMemory|CharsetText|Charsets|ClientSuites|ConstantMemory|DecodedSize|Definitions|Desync|Echoes|Encoded|EncodedOverrides|EncodedValue|EventBounds|FinalHeaders|Inspector|LargeBodies|LedgerBrokenBody|Load|LoginAttacks|LoginBounds|ManyExchanges|MemoryFirst|MemoryShare|MessageBounds|MintedLong|MintedUnderLoad|MirrorHostile|MostHashes|NothingIsLeft|OddResponses|Oracle|OthersGiveWay|PassedForms|PassedNames|PathsOfServers|PlanTenants|PostgresAway|Readings|ReadingsBite|ReadingsHTTP2|ReadingsMutated|RealServers|RefreshUnderLoad|Remote|Retention|Rules|ScrubbedAcrossCuts|SharedBounds|SkillsConformance|SlowDisk|StashEntries|TenantDrafts|ThousandSlots|Tokens|TotalBytes|UnclearLate|UnclearWithoutName|UnreadAnswers|VersionsGiveWay|Week'
# list_sums DIR... prints the names of tests in the directories that run without it.
list_sums() {
	local dir
	for dir in "$@"; do
		grep -L '^//go:build' "$dir"/*_test.go
	done | xargs cat | awk -v sums="^Test($sums)[(]" '
		/^func / { name = $2 ~ /^Test/ && $2 !~ /^TestDisarmed/ ? $2 : "" }
		name ~ sums || name && /costtest\./ { sub(/\(.*/, "", name); print name; name = "" }' | sort -u
}
# Packages that take long start first.
long='./mcp-server/cmd/mcp-server ./proxy/internal/egress ./mcp-server/internal/broker ./mcp-server/internal/history'

# Four packages run at a time, because many wait more than they compute. make lint vets. Each status is recorded, because
# bash ignores set -e in what start runs.
# shellcheck disable=SC2086
unit() {
	local usual="-vet=off -timeout 30m -p 2" races=$long quiet='' mixed='' names='^$' status=0 beside dir
	for dir in $($go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./...); do
		dir=./${dir#"$PWD"/}
		case " $plain $long " in
		*" $dir "*) ;;
		*) if finds_races "$dir"; then races="$races $dir"; else quiet="$quiet $dir"; fi ;;
		esac
	done
	if ! command -v "$($go env CC)" >/dev/null; then
		if [ -n "${CODEFORGE_NO_SKIP:-}" ]; then
			echo "no C compiler: the race detector cannot run" >&2
			return 1
		fi
		heading "race detector: skipped, no C compiler"
		gotest $usual -- $plain $quiet $races
		return
	fi
	if [ -n "$all" ]; then
		races="$plain $quiet $races" plain='' quiet=''
	else
		names="^($(list_sums $races | paste -sd '|'))\$"
		for dir in $races; do
			if grep -qE "^func ${names//[\^\$]/}\(" "$dir"/*_test.go; then mixed="$mixed $dir"; fi
		done
	fi
	if [ -n "$plain$quiet" ]; then
		heading "unit tests that gain nothing by the race detector"
		{
			gotest $usual -- $plain $quiet || status=1
			gotest $usual -run "$names" -- $mixed || status=1
			return $status
		} &
		beside=$!
	fi
	heading "unit tests with the race detector"
	# By default every program that ends waits for a second. Fewer collections save a tenth of the time.
	export CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 GOGC=400
	gotest $usual -race -skip "$names" -- $races || status=1
	export CGO_ENABLED=0
	unset GOGC
	[ -z "${beside:-}" ] || wait "$beside" || status=1
	return $status
}

# embedded_e2e FLAG... PACKAGE... runs packages in embedded mode.
embedded_e2e() {
	(cd e2e && CODEFORGE_E2E_MODE=embedded gotest -vet=off -count=1 -timeout 30m "$@")
}
embedded_attacks() {
	heading "end to end, embedded mode: ./attack"
	embedded_e2e -- ./attack
}
# It mostly waits: it took 33 s of processor time in 110 s.
embedded_crash() {
	heading "end to end, embedded mode: ./crash"
	embedded_e2e -- ./crash
}
embedded_rest() {
	local rest
	heading "end to end, embedded mode: the rest"
	rest=$(cd e2e && $go list ./... | grep -Ev '/e2e/(attack|crash|docker|release)$') # the last two have no tests in this mode
	# What takes longest starts first.
	# shellcheck disable=SC2086
	embedded_e2e -p 2 -- ./console . ./negative ./walk ./servers $rest
}
embedded() {
	local status=0 attacks crash
	embedded_attacks &
	attacks=$!
	embedded_crash &
	crash=$!
	embedded_rest || status=1
	wait $attacks || status=1
	wait $crash || status=1
	return $status
}

# engine succeeds if a Docker engine is running.
engine() {
	local why
	why=$(make/engine.sh 2>&1) && return
	if [ -n "${CODEFORGE_NO_SKIP:-}" ]; then
		echo "--- end to end, Docker mode: $why, and skips are failures here" >&2
		exit 1
	fi
	heading "end to end, Docker mode: skipped, $why"
	return 1
}

# docker_e2e PACKAGE... runs packages that have tests in Docker mode. Their stacks take turns, so a package may wait for
# long.
docker_e2e() {
	heading "end to end, Docker mode: $*"
	(cd e2e && CODEFORGE_E2E_MODE=docker gotest -vet=off -count=1 -timeout 60m -- "$@")
}

# The stages with Go are the same for all images. Once Docker has them in its cache, tests may build images side by side.
compile_for_images() {
	heading "the programs of the images"
	CODEFORGE_TAG=e2e docker compose build --quiet settings >/dev/null
}

# The console's walk through all pages runs here too: 40 to 90 s plus the stack's start, depending on the machine's load.
stacks() {
	local status=0
	docker_e2e ./docker ./servers ./walk . ./release || status=1
	heading "end to end, Docker mode: the console's pages"
	(cd e2e && CODEFORGE_E2E_MODE=docker gotest -vet=off -count=1 -timeout 60m -run '^TestConsole$' -- ./console) || status=1
	return $status
}

# Some attacks measure the machine's memory. Suites of attacks take turns with those, and with other tests that take much.
attacks() { docker_e2e ./attack; }

# Its attacks wait until the file $tmp/quiet exists.
kubernetes() {
	[ -n "${CODEFORGE_KUBERNETES:-}" ] || return 0
	heading "end to end, on Kubernetes"
	CODEFORGE_QUIET=$tmp/quiet $CODEFORGE_KUBERNETES
}

restart() {
	[ -n "${CODEFORGE_ENGINE_RESTART:-}" ] || return 0
	heading "the Docker engine ends under the stack"
	(cd e2e && CODEFORGE_E2E_MODE=docker gotest -vet=off -count=1 -timeout 15m -run '^TestEngineRestart$' -- ./docker)
}

# fuzz searches for ten minutes: each target for its share.
fuzz() {
	local targets
	targets=$(git grep -hE '^func Fuzz' -- '*_test.go' | wc -l)
	heading "ten minutes of fuzzing, $targets targets"
	FUZZTIME=$((600 * $(getconf _NPROCESSORS_ONLN) / targets + 1))s make/fuzz.sh
}

# start runs a part in the background. finish waits for it, and records whether it failed.
start() {
	"$1" &
	job=$!
	jobs="$jobs $job"
}
failed=''
finish() { wait "$1" || failed=yes; }

everything() {
	local images unit stacks crash rest mine theirs kubernetes
	if ! engine; then
		start unit && finish "$job"
		start embedded && finish "$job"
		return
	fi
	start compile_for_images && images=$job
	start embedded_crash && crash=$job
	start unit && unit=$job
	finish "$images"
	start stacks && stacks=$job # they wait more than they compute
	finish "$unit"
	start embedded_attacks && mine=$job
	# Unit tests beside it would run as the users of its slots, whose processes the kernel counts together.
	start kubernetes && kubernetes=$job
	finish "$mine" # three suites of attacks at once would take each other's time
	touch "$tmp/quiet"
	start attacks && theirs=$job
	start embedded_rest && rest=$job # it computes, while the attacks in Docker and on Kubernetes mostly wait
	finish "$stacks"
	finish "$crash"
	finish "$rest"
	finish "$theirs"
	finish "$kubernetes"
	start restart && finish "$job"
}

if [ $# = 0 ]; then
	everything
	[ -z "$all" ] || { start fuzz && finish "$job"; }
fi
for part in "$@"; do
	case $part in
	unit | embedded) start "$part" && finish "$job" ;;
	docker)
		engine || continue
		start stacks && finish "$job"
		start attacks && finish "$job"
		start restart && finish "$job"
		;;
	*)
		echo "test.sh: $part is not a part: want unit, embedded or docker" >&2
		exit 2
		;;
	esac
done
[ -n "$failed" ] || { start again && finish "$job"; }
if [ -s "$tmp/unstable" ]; then
	echo "--- unstable, which is a defect: these failed, then passed alone"
	cat "$tmp/unstable"
fi
heading "${failed:+not }all passed; idle: $(($(idle) - idle_before)) of $(((SECONDS - began) * $(getconf _NPROCESSORS_ONLN))) processor seconds; containers: $(($(containers) - containers_before))"
[ -z "$failed" ]
