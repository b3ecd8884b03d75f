"""Installs packages of PyPI into FOLDER/python, as FOLDER/requirements.lock says. Makes the lock file if it is missing,
with the versions of FOLDER/requirements.lock.new if they fit.

If FOLDER/known lists files of a version, the new lock file has only these. So a file that the index got later does not
prevent an installation. sandboxd checks the lock file again.

Arguments: uv, FOLDER, the packages as NAME==VERSION, --, options of uv, --, and constraints on dependencies. The index
is in UV_DEFAULT_INDEX.
"""
import os
import subprocess
import sys

uv, folder, *words = sys.argv[1:]
end = words.index("--")
packages, words = words[:end], words[end + 1:]
end = words.index("--")
options, constraints = words[:end], words[end + 1:]
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


def read_pins(name):
    """Reads the checksums of each NAME==VERSION. A line that begins with a space continues a version."""
    pins = {}
    for line in open(name) if os.path.exists(name) else ():
        words = line.replace("\\", " ").split()
        if words and not line.startswith(" "):
            pin = pins.setdefault(words.pop(0), [])
        if words:
            pin += words
    return pins


if not os.path.exists(lock):
    run_uv("pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate",
           "--output-file", lock + ".new", "--constraints", write_lines("constraints", constraints),
           write_lines("requirements", packages))
    known = read_pins(folder + "/known")
    with open(lock, "w") as f:
        for pin, files in read_pins(lock + ".new").items():
            # If the index has other files only, they stay, so that sandboxd reports them.
            f.write(" \\\n    ".join([pin] + ([h for h in files if h in known.get(pin, files)] or files)) + "\n")
# A link into the cache would let a later installation change the package.
run_uv("pip", "install", "--require-hashes", "--no-deps", "--link-mode", "copy", "--compile-bytecode",
       "--target", folder + "/python", "--requirements", lock)
