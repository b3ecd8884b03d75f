#!/bin/sh
# release.sh DIR [ARCH...]: puts into DIR what packages for Linux have besides the binaries: DIR/ARCH (amd64, arm64) has
# Deno, TypeScript's compiler, uv and the examples of APIs. DIR/man and DIR/completions are made from the command line's
# own help, DIR/README.md says how to start from npm. VERSION is the release's. In a snapshot (SNAPSHOT=true) an ARCH may be
# without Deno; the output says so.
set -eu
cd "$(dirname "$0")/.."
dir=$1
shift
rm -rf "$dir/man" "$dir/completions"
mkdir -p "$dir/man" "$dir/completions"
for arch in "${@:-amd64}"; do
	case $arch in
	amd64) machine=x86_64 ;;
	arm64) machine=aarch64 ;;
	*)
		echo "release.sh: $arch is not an architecture of a release: want amd64 or arm64" >&2
		exit 2
		;;
	esac
	mkdir -p "$dir/$arch"
	cp --parents apis/config.schema.json apis/*/config.json.example apis/*/types.d.ts "$dir/$arch"
	MACHINE=$machine make/typescript.sh "$dir/$arch/typescript"
	MACHINE=$machine make/uv.sh "$dir/$arch/uv"
	MACHINE=$machine make/deno.sh "$dir/$arch/deno" || {
		[ "${SNAPSHOT:-}" = true ] || exit 1
		echo "the packages of this snapshot for $arch are without Deno" >&2
	}
done
make/release-readme.sh "${VERSION:-dev}" >"$dir/README.md"
codeforge() { "${GO:-go}" run ./cli/cmd/codeforge "$@"; }
codeforge man >"$dir/man/codeforge.1"
for command in $(codeforge __completeNoDesc man "" | grep -v :); do
	codeforge man "$command" >"$dir/man/codeforge-$command.1"
done
codeforge completion bash >"$dir/completions/codeforge"
codeforge completion zsh >"$dir/completions/_codeforge"
codeforge completion fish >"$dir/completions/codeforge.fish"
