// Bundles grpc-js as it is into one file, argv[2]: the build for Node, whose built-in modules Deno has too. The sandbox has
// no variables of the environment.
import { build } from "esbuild";

await build({
  stdin: { contents: `import * as grpc from "@grpc/grpc-js"; globalThis.grpc = grpc;`, resolveDir: process.cwd() },
  bundle: true,
  minify: true,
  format: "esm",
  platform: "node",
  outfile: process.argv[2],
  logLevel: "error",
  banner: { js: `import { createRequire } from "node:module"; const require = createRequire("file:///main.js"), none = {};` },
  define: { "process.env": "none" },
});
