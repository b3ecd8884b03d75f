#!/bin/sh
# corpus.sh HOME LIST...: imports the documents of lists (a line: the API's name, the document) into HOME/apis, and names the
# documents in HOME/out/documents.txt.
set -eu
cd "$(dirname "$0")/.."
home=$1
shift
rm -rf "$home/apis"
mkdir -p "$home/apis" "$home/out"
cat "$@" | cut -d' ' -f2 >"$home/list.txt"
make/documents.sh ".tools/openapi-${home##*/}" "$home/list.txt"
documents=$PWD/.tools/openapi-${home##*/}/api
cat "$@" | while read -r name file; do
	bin/codeforge api add "$name" --openapi "$documents/$file.json" --server "https://api.$name.com" --scheme none \
		--apis "$home/apis" </dev/null >"$home/out/add.txt" 2>&1 || { cat "$home/out/add.txt" && exit 1; }
	echo "$name $documents/$file.json"
done >"$home/out/documents.txt"
