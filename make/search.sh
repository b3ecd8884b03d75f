#!/bin/sh
# search.sh: prints how well the search over operations answers the questions of mcp-server/internal/tools/testdata/questions,
# by words, by meaning and by both. CODEFORGE_RELEASE=1 asks the blind questions too: see release.txt.
set -eu
cd "$(dirname "$0")/.."
home=$PWD/bench/out/search
make/corpus.sh "$home" make/tokens.txt make/search.txt
CODEFORGE_CORPUS=$home "${GO:-go}" test -tags corpus -count=1 -v -run '^Test(Ranking|Day|Memory|Refund)$' ./mcp-server/internal/tools
