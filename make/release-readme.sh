#!/bin/sh
# release-readme.sh VERSION: prints the README of a release: README.md with the ways to start from npm and from released
# images, which exist only after the release.
set -eu
cd "$(dirname "$0")/.."
awk -v version="v${1#v}" '
	/ \(unreleased\) / { sub(/v[0-9.]+ \(unreleased\)/, version) }
	/^\*\*1\. Start CodeForge\.\*\* / {
		print "**1. Start CodeForge.** On Linux with bubblewrap and npm 7 or newer, start it from npm:"
		print ""
		print "```sh"
		print "npx -y codeforge-mcp up --detach"
		print "```"
		print ""
		print "For `bin/codeforge` below, write `npx -y codeforge-mcp`, or `codeforge` after `npm install -g codeforge-mcp`. Without npm,"
		print "install [the deb or rpm](docs/contribute/releases.md)."
		print ""
		print "With Docker, on Linux, macOS or WSL, unpack `codeforge_" substr(version, 2) "_docker.tar.gz` of the release:"
		print ""
		print "```sh"
		print "cd codeforge-" substr(version, 2) " && ./up.sh"
		print "```"
		print ""
		print "The rest of this step builds CodeForge instead."
		print ""
		sub(/^\*\*1\. Start CodeForge\.\*\* /, "")
		found = 1
	}
	{ print }
	END { if (!found) { print "release-readme.sh: README.md has no step 1" >"/dev/stderr"; exit 1 } }' README.md
