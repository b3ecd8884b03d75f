"""Installs a package of PyPI: FOLDER/requirements.lock, unless it exists, and FOLDER/python.

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


def write(name, lines):
    with open(folder + "/" + name, "w") as f:
        f.write("".join(line + "\n" for line in lines))
    return f.name


def run(*words):
    code = subprocess.call([uv, *words, *options])
    if code:
        sys.exit(code)


if not os.path.exists(lock):
    run("pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate", "--output-file", lock + ".new",
        "--constraints", write("constraints", constraints), write("requirements", [package]))
    os.rename(lock + ".new", lock)
# A link into the cache would let a later installation change the package.
run("pip", "install", "--require-hashes", "--no-deps", "--link-mode", "copy", "--compile-bytecode",
    "--target", folder + "/python", "--requirements", lock)
