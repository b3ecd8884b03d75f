#!/bin/sh
# bench.sh: compares CodeForge with its peers on this machine. BENCH_QUICK=1 takes about three minutes. Arguments go to
# bin/bench (--only proxy).
set -eu
cd "$(dirname "$0")/.."
if ! command -v mitmdump >/dev/null; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		make/packages.sh mitmdump=mitmproxy iptables=iptables || echo "bench: mitmproxy could not be installed: its rows are left out"
	else
		echo "bench: mitmproxy is not installed (on Debian or Ubuntu: sudo apt-get install mitmproxy): its rows are left out"
	fi
fi
. make/goflags.sh
(cd e2e && "${GO:-go}" build -o ../bin/bench ./bench/cmd/bench)
bin/bench "$@"
[ $# = 0 ] && [ -z "${BENCH_QUICK:-}" ] || exit 0

# The Go benchmarks of the packages, in the form in which benchstat compares two versions.
mkdir -p bench/out
git grep -l '^func Benchmark' -- '*_test.go' | xargs -n 1 dirname | sort -u | sed 's,^,./,' |
	xargs "${GO:-go}" test -run '^$' -bench . -benchmem -benchtime 100ms -count 3 -cpu 1 >bench/out/go.txt
(cd e2e && "${GO:-go}" tool benchstat ../bench/out/go.txt)
