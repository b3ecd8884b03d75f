#!/usr/bin/env node
// Starts the program codeforge of this platform's package with the same arguments, and ends as it ends.
"use strict";
const { spawn } = require("child_process");
const { constants } = require("os");
const path = require("path");

const platform = `${process.platform}-${process.arch}`;

function findPackage() {
  try {
    return path.dirname(require.resolve(`@codeforge-mcp/${platform}/package.json`));
  } catch {
    console.error(
      `codeforge-mcp: the package @codeforge-mcp/${platform} is missing. It exists for linux, darwin and win32 on x64 and ` +
        "arm64. If this is one of them, install again without --omit=optional or --no-optional.",
    );
    process.exit(1);
  }
}

// Deno's own package is a dependency of the one for Linux. A package manager may put it at several places.
function findDeno(dir) {
  try {
    return require.resolve(`@deno/${platform}-glibc/deno`, { paths: [dir] });
  } catch {
    return ""; // codeforge names the missing program itself
  }
}

const dir = findPackage();
const env = { ...process.env };
if (process.platform === "linux" && !env.DENO_PATH) {
  env.DENO_PATH = findDeno(dir);
}
// npx puts the folders node_modules/.bin of the working directory and of all folders above it, such as /tmp, first. No
// program there may pass for bwrap or docker. Its owner may be another user.
for (const name of Object.keys(env).filter((name) => name.toUpperCase() === "PATH")) {
  const added = /[\\/](node_modules[\\/]\.bin|node-gyp-bin)[\\/]?$/;
  env[name] = env[name].split(path.delimiter).filter((dir) => !added.test(dir)).join(path.delimiter);
}
const args = process.argv.slice(2);
// Children inherit npm_command, but only npx runs the package from its cache.
const npx = process.env.npm_command === "exec" && __dirname.split(path.sep).includes("_npx");
const program = path.join(dir, "lib", process.platform === "win32" ? "codeforge.exe" : "codeforge");
const child = spawn(program, args, { stdio: "inherit", env, argv0: npx ? "npx -y codeforge-mcp" : "codeforge" });
// A terminal sends SIGINT to both processes, so this one only waits for the other.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`codeforge-mcp: cannot start ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (code === 0 && npx && args[0] === "up" && process.stderr.isTTY) {
    console.error("For the next commands: alias codeforge='npx -y codeforge-mcp', or as root: npm install -g codeforge-mcp");
  }
  process.exit(signal ? 128 + constants.signals[signal] : code);
});
