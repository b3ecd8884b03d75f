#!/bin/sh
# bench.sh: measures CodeForge against its peers here. BENCH_QUICK=1 takes two and a half minutes; other arguments go to
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
(cd e2e && CGO_ENABLED=0 "${GO:-go}" build -trimpath -o ../bin/bench ./bench/cmd/bench)
exec bin/bench "$@"
