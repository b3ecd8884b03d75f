#!/bin/sh
# packages.sh COMMAND=PACKAGE... PACKAGE...: installs packages that are missing: COMMAND=PACKAGE if the command is, PACKAGE
# if the package is. As root on Debian or Ubuntu it uses apt-get and says so. Elsewhere it says what to install and fails.
set -eu
missing=
for pair in "$@"; do
	case $pair in
	*=*) command -v "${pair%%=*}" >/dev/null || [ -x "/usr/sbin/${pair%%=*}" ] || missing="$missing ${pair#*=}" ;;
	*) dpkg -s "$pair" >/dev/null 2>&1 || missing="$missing $pair" ;;
	esac
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "Missing:$missing. Install with your system's package manager (on Debian or Ubuntu: sudo apt-get install$missing)." >&2
	exit 1
fi
echo "Installing with apt-get:$missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Print apt-get's output only if it fails.
# shellcheck disable=SC2086
{ apt-get -q install -y --no-install-recommends $missing || { apt-get -q update && apt-get -q install -y --no-install-recommends $missing; }; } >"$log" 2>&1 ||
	{ cat "$log" >&2; echo "apt-get could not install:$missing" >&2; exit 1; }
