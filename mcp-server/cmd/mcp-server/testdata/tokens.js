// Counts the tokens of each line's text (JSON strings on stdin) by two tokenizers: o200k and Claude's published one.
const { getEncoding } = require("js-tiktoken");
const { countTokens } = require("@anthropic-ai/tokenizer");
const o200k = getEncoding("o200k_base");
const lines = require("fs").readFileSync(0, "utf8").split("\n").filter(Boolean).map((l) => JSON.parse(l));
console.log(JSON.stringify(lines.map((l) => [o200k.encode(l).length, countTokens(l)])));
