#!/bin/sh
# site.sh: build docs/ as a site with search into bin/site, with MkDocs from PyPI. Its files stay in the cache of all checkouts.
set -eu
cd "$(dirname "$0")/.."
tools=${XDG_CACHE_HOME:-$HOME/.cache}/codeforge-tools/mkdocs-material-9.8.2
if ! [ -x "$tools/bin/mkdocs" ]; then
	python3 -m venv "$tools"
	"$tools/bin/pip" install --quiet mkdocs-material==9.8.2
fi
"$tools/bin/mkdocs" build --quiet --strict --config-file make/site.yml
echo "bin/site/index.html; with search: python3 -m http.server --directory bin/site"
