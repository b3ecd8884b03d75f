#!/bin/sh
# lint.sh: golangci-lint, gofmt, go mod tidy, shellcheck, and Deno's check and fmt, codespell and words, over the whole project.
set -eu
cd "$(dirname "$0")/.."
golangci=v2.15.0
. make/goflags.sh
root=$PWD
tools=$root/.tools
mkdir -p "$tools"
linters=${XDG_CACHE_HOME:-$HOME/.cache}/codeforge-tools/golangci-lint-$golangci # for all checkouts: its build takes minutes
if ! [ -x "$linters/golangci-lint" ]; then
	echo "building golangci-lint $golangci"
	GOWORK=off GOBIN=$linters go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$golangci"
fi
status=0
for dir in $(go list -f '{{.Dir}}' -m); do
	(cd "$dir" && "$linters/golangci-lint" run --allow-serial-runners --config "$root/.golangci.yml" ./...) || { echo "lint: $dir has findings" >&2; status=1; }
	(cd "$dir" && GOWORK=off go mod tidy -diff >/dev/null) || { echo "lint: $dir: go.mod or go.sum is not tidy (GOWORK=off go mod tidy)" >&2; status=1; }
done
GOARCH=arm64 go vet ./sandbox-image/internal/seccomp || status=1 # has a file per architecture
for system in darwin windows; do # the command line runs there too
	GOOS=$system go build -o /dev/null ./cli/cmd/codeforge || { echo "lint: codeforge does not build for $system" >&2; status=1; }
done
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || { echo "lint: not gofmt'ed: $unformatted" >&2; status=1; }
if command -v shellcheck >/dev/null; then
	git ls-files '*.sh' .ci/run | xargs shellcheck || status=1
elif [ -n "${CODEFORGE_NO_SKIP:-}" ]; then
	echo "lint: shellcheck is not installed" >&2
	status=1
else
	echo "lint: shellcheck skipped, not installed"
fi
deno=${DENO_PATH:-$tools/deno}
make/deno.sh "$tools/deno" || status=1
(cd e2e/attack/testdata && "$deno" check --quiet . && "$deno" fmt --check --quiet .) || { echo "lint: e2e/attack/testdata has findings (deno check, deno fmt)" >&2; status=1; }
speller=${XDG_CACHE_HOME:-$HOME/.cache}/codeforge-tools/codespell-2.4.3
if [ -x "$speller/bin/codespell" ] || { python3 -m venv "$speller" && "$speller/bin/pip" install --quiet codespell==2.4.3; }; then
	# Te is a header; stauts is a mistake that docs/reference/screens.md shows.
	git ls-files '*.md' | xargs "$speller/bin/codespell" --ignore-words-list te,stauts || status=1
elif [ -n "${CODEFORGE_NO_SKIP:-}" ]; then
	echo "lint: codespell cannot be installed" >&2
	status=1
else
	echo "lint: codespell skipped, Python cannot install it (Debian: python3-venv)"
fi
(cd e2e && go run ./words) || { echo "lint: e2e/words has findings" >&2; status=1; }
exit $status
