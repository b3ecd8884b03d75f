"""Runs a program of a package from PyPI.

Arguments: the folder of packages, the package, the program or "", and the program's arguments.
"""
import os
import sys
from importlib import metadata

store, package, program, *arguments = sys.argv[1:]
sys.path.append(store)  # after the standard library: old backports have its names


def has_same_name(a, b):
    return a.lower().replace("_", "-").replace(".", "-") == b.lower().replace("_", "-").replace(".", "-")


def find_program():
    scripts = [e for e in metadata.distribution(package).entry_points if e.group == "console_scripts"]
    found = [e for e in scripts if has_same_name(e.name, program or package)]
    if not found and not program and len(scripts) == 1:
        found = scripts
    if found:
        return found[0].name, found[0].load
    path = os.path.join(store, "bin", program or package)
    if os.path.isfile(path):  # a program in another language
        os.execv(path, [path, *arguments])
    names = ", ".join(sorted(e.name for e in scripts)) or "none"
    sys.exit(f"the package has no program {program or package!r}. It has: {names}. Choose one: pypi:NAME@VERSION/PROGRAM")


# Dependencies whose versions from this one on break many servers.
BOUNDS = {"mcp": "2", "pydantic": "2.12"}


def version_numbers(version):
    return [int(n) for n in version.split(".") if n.isdigit()]


def advise(error):
    """Returns constraints that probably help after an error, as items of a JSON list, or ""."""
    if isinstance(error, ImportError) and not error.name:
        return ""  # a module raised it for another reason
    versions = {d.metadata["Name"]: d.version for d in metadata.distributions(path=[store])}
    return ", ".join(f'"{name}<{bound}"' for name, bound in BOUNDS.items()
                     if version_numbers(versions.get(name, "0")) >= version_numbers(bound))


try:
    name, load = find_program()
    main = load()
    sys.argv = [name, *arguments]
    code = main()
except (ImportError, AttributeError, TypeError) as error:
    import traceback
    traceback.print_exc()
    if found := advise(error):
        sys.exit(f'A dependency is probably too new for this server. This often helps in its config.json: '
                 f'"mcp": {{"constraints": [{found}], ...}}')
    sys.exit(1)
sys.exit(code)
