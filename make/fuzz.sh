#!/bin/sh
# fuzz.sh: runs every fuzz target for FUZZTIME (default 5s each), as many at a time as there are processors.
# fuzz.sh PROGRAM DIR TARGET: runs the one target, with a test program built for fuzzing.
set -eu
cd "$(dirname "$0")/.."
time=${FUZZTIME:-5s}

# one runs a target. When the time is up, Go may report the deadline itself as a failure, without a failing input
# (golang/go#75804). Only then is the target run again, at most three times in all.
one() {
	program=$1 dir=$2 target=$3
	cache=$(go env GOCACHE)/fuzz/$(cd "$dir" && go list) # go test keeps inputs there too
	out=$(mktemp)
	trap 'rm -f "$out"' EXIT
	for try in 1 2 3; do
		status=0
		(cd "$dir" && "$program" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.parallel 1 \
			-test.fuzzcachedir "$cache") >"$out" 2>&1 || status=$?
		printf '%s\n' "--- $dir $target, try $try" "$(cat "$out")" # in one write: others print too
		[ $status != 0 ] || return 0
		grep -qx ' *context deadline exceeded' "$out" && ! grep -q 'Failing input written' "$out" || return 1
	done
	return 1
}
if [ $# = 3 ]; then
	one "$@"
	exit
fi

. make/goflags.sh

programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
processors=$(getconf _NPROCESSORS_ONLN)
targets=$programs/targets
git grep -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed -E 's,^(.*)/[^/]*:func ,\1 ,' >"$targets"
# shellcheck disable=SC2016
cut -d' ' -f1 "$targets" | sort -u |
	xargs -P "$processors" -I DIR sh -c 'go test -c -fuzz=. -vet=off -o "$0/$1.test" "./$1"' "$programs" DIR
while read -r dir target; do
	echo "$programs/$dir.test" "$dir" "$target"
done <"$targets" | xargs -P "$processors" -L 1 make/fuzz.sh
