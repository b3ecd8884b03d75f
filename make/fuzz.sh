#!/bin/sh
# fuzz.sh: runs every fuzz target for FUZZTIME (default 5s each), one after the other.
set -eu
cd "$(dirname "$0")/.."
time=${FUZZTIME:-5s}
targets=$(mktemp)
trap 'rm -f "$targets"' EXIT
git grep -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' >"$targets"
while IFS=: read -r file func; do
	dir=$(dirname "$file")
	target=${func#func }
	echo "--- $dir $target"
	(cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" .)
done <"$targets"
