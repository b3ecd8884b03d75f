# shellcheck shell=sh
# step.sh is sourced: step TEXT prints what a script is doing, and how many seconds after its start.
started=$(date +%s)
step() {
	printf '[%3d s] %s\n' $(($(date +%s) - started)) "$1"
}
