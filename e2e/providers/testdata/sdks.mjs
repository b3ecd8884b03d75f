// Bundles AWS's SDK and Supabase's client as they are into one file, argv[2]: the builds for browsers, which need neither
// files nor variables of the environment, with the parser of XML that AWS's SDK has for where there is no DOM.
import { build } from "esbuild";

await build({
  stdin: {
    contents: `export * from "@aws-sdk/client-s3"; export { Upload } from "@aws-sdk/lib-storage"; export { createClient } from "@supabase/supabase-js";`,
    resolveDir: process.cwd(),
  },
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "sdk",
  platform: "browser",
  outfile: process.argv[2],
  logLevel: "error",
  plugins: [{
    name: "xml",
    setup(b) {
      b.onResolve({ filter: /\/xml-parser$/ }, (args) => ({ path: args.resolveDir + "/xml-parser.js" }));
    },
  }],
});
