"""Installs a package of PyPI into FOLDER/python, as FOLDER/requirements.lock says. Makes the lock file if it is missing.

Arguments: uv, FOLDER, the package as NAME==VERSION, options of uv, --, and constraints on dependencies. The index is in
UV_DEFAULT_INDEX.
"""
import os
import subprocess
import sys

uv, folder, package, *options = sys.argv[1:]
end = options.index("--")
options, constraints = options[:end], options[end + 1:]
options += ["--no-config", "--python", sys.executable, "--cache-dir", folder + "/cache"]
lock = folder + "/requirements.lock"


def write_lines(name, lines):
    with open(folder + "/" + name, "w") as f:
        f.write("".join(line + "\n" for line in lines))
    return f.name


def run_uv(*words):
    code = subprocess.call([uv, *words, *options])
    if code:
        sys.exit(code)


if not os.path.exists(lock):
    run_uv("pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate",
           "--output-file", lock + ".new", "--constraints", write_lines("constraints", constraints),
           write_lines("requirements", [package]))
    os.rename(lock + ".new", lock)
# A link into the cache would let a later installation change the package.
run_uv("pip", "install", "--require-hashes", "--no-deps", "--link-mode", "copy", "--compile-bytecode",
       "--target", folder + "/python", "--requirements", lock)
