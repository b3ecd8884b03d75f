#!/bin/sh
# compose-release.sh VERSION IMAGES DIR: makes DIR, the folder with which a release starts in Docker without its source.
# Standard input has a line NAME DIGEST for each image IMAGES/NAME of docker-compose.yml. DIR/up.sh is rebuild.sh: it
# fetches the images by their digests instead of building them, because DIR has a file VERSION.
set -eu
cd "$(dirname "$0")/.."
version=v${1#v} images=$2 dir=$3
[ ! -e "$dir" ] || { echo "compose-release.sh: $dir exists" >&2; exit 1; }
mkdir -p "$dir/make"
cp --parents docker-compose.nosocket.yml .env.example LICENSE SECURITY.md CHANGELOG.md \
	sandbox-image/seccomp.json sandbox-image/resolv.conf make/engine.sh make/host.sh make/step.sh \
	apis/config.schema.json apis/*/config.json.example apis/*/types.d.ts "$dir"
cp -R docs "$dir/docs"
cp rebuild.sh "$dir/up.sh"
echo "$version" >"$dir/VERSION"
make/release-readme.sh "$version" >"$dir/README.md"
awk -v images="$images" '
	NR == FNR { digest[$1] = $2; next }
	/^    build:|^x-build-args:/ { skip = index($0, "b") == 5 ? 4 : 0; skipping = 1; next }
	skipping && match($0, /[^ ]/) && RSTART - 1 > skip { next }
	{ skipping = 0 }
	/^  # By default the images are built here/ || /^# Only variables that are set are passed on/ { next }
	/^  pull_policy: / { print "  pull_policy: missing"; next }
	/^    image: / {
		name = $2
		gsub(/^.*\}\/|:.*$/, "", name)
		if (digest[name] !~ /^sha256:[0-9a-f]+$/ || length(digest[name]) != 71) {
			print "compose-release.sh: no digest of the image " name >"/dev/stderr"
			exit 1
		}
		print "    image: " images "/" name "@" digest[name]
		next
	}
	/up -d --build/ { sub(/ --build/, "") }
	{ print }
	END { if (NR == FNR) exit 1 }' - docker-compose.yml >"$dir/docker-compose.yml"
