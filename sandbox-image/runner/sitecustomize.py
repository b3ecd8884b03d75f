"""Runs before the user's code, in an interpreter started ahead of time.

Python imports this module before it opens main.py, which need not exist yet. So Python itself runs main.py, with the
usual tracebacks, exit codes and __main__, unless main.py has top-level await. Standard input is that of warm.js.
"""

import os
import sys


def preload_modules():
    """Loads the modules that nearly all code with API calls needs, and starts OpenSSL. It sends no request."""
    import encodings.idna  # noqa: F401
    import json  # noqa: F401
    import ssl
    import urllib.request

    ssl.create_default_context()
    urllib.request.urlopen("data:,").close()
    urllib.request._opener = None  # the code may change the environment, which this has read


def await_order():
    """Waits for the order to run, and sets the run's variables. Returns the JSON line of MCP servers and the source of
    mcp.py, or else None."""
    os.write(1, b"\0")
    order = os.read(0, 1)
    if order == b"l":
        try:
            preload_modules()
        except Exception:  # code that uses the missing module gets the error too
            pass
        keep_modules()
        order = os.read(0, 1)
    if order == b"e":
        import json

        os.environ.update(json.loads(read_part()))
        order = os.read(0, 1)
    if order == b"\n":
        return None
    if order != b"m":
        os._exit(0)
    return read_part().split(b"\n", 1)


def read_part():
    """Reads eight hexadecimal digits, and as many bytes as they say."""
    return read_bytes(int(read_bytes(8), 16))


def read_bytes(length):
    """Reads so many bytes of standard input. The rest is the code's."""
    data = b""
    while len(data) < length and (part := os.read(0, length - len(data))):
        data += part
    return data


def define_mcp(line, source):
    """Makes mcp, parallel, stash and McpError builtins."""
    import builtins
    import json

    space = {"__name__": "mcp.codeforge", "servers": json.loads(line)}
    exec(compile(source, "<codeforge>", "exec", dont_inherit=True), space)
    for name in ("mcp", "parallel", "stash", "McpError"):
        setattr(builtins, name, space[name])


def shrink_image(data):
    """Returns an image scaled down to at most 1,568 px a side. Without Pillow, or for other data, it returns data."""
    try:
        import io
        from PIL import Image

        image = Image.open(io.BytesIO(data))
        if max(image.size) <= 1568:
            return data
        made = io.BytesIO()
        kind = image.format
        image.thumbnail((1568, 1568))
        image.save(made, kind)
        return made.getvalue()
    except Exception:  # no Pillow, or not an image. mcp-server checks the data
        return data


def define_show():
    """Makes show(path_or_bytes) a builtin. It adds an image or a sound to the answer of execute_code."""
    import builtins

    sizes = []

    def show(what):
        if isinstance(what, dict):
            what = what["path"]  # a file from a tool of an MCP server
        if not isinstance(what, (bytes, bytearray, memoryview)):
            with open(what, "rb") as f:
                what = f.read()
        data = shrink_image(what)
        if len(sizes) == 4:
            raise ValueError("A run shows at most 4 images and sounds")
        if sum(sizes) + len(data) > 2 << 20:
            raise ValueError("A run shows at most 2 MiB: make the image smaller")
        os.makedirs("/out/.shown", exist_ok=True)
        with open(f"/out/.shown/{len(sizes) + 1}", "wb") as f:
            f.write(data)
        sizes.append(len(data))

    builtins.show = show


class SkillFinder:
    """Imports /skills/<name>.py as skills.<name>, with _ for -. Two skills with that name are an ImportError.

    It never reads byte code: another run could leave a file in /skills that differs from the shown source.
    """

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        package, _, name = fullname.rpartition(".")
        return find_skill(fullname, name) if package == "skills" else None


class SkillPath:
    """Finds skills if sys.path has /skills. Python's own finder would ignore pins and read byte code."""

    @staticmethod
    def find_spec(fullname, target=None):
        return find_skill(fullname, fullname)

    @staticmethod
    def open_path(path):
        if os.path.realpath(path) != "/skills":
            raise ImportError
        return SkillPath


def find_skill(fullname, name):
    """Returns the spec of the skill with this name for the module fullname, or None. A pinned skill comes first."""
    external = sys.modules["_frozen_importlib_external"]

    class Loader(external.SourceFileLoader):
        def get_code(self, fullname):
            # Text, not bytes: with a "# coding:" line, Python could run other code than a reader of a pin sees.
            source = self.get_data(self.path).decode("utf-8-sig")
            return compile(source, self.path, "exec", dont_inherit=True)

    own = os.path.dirname(__file__)
    names = dict.fromkeys((f"{name}.py", name.replace("_", "-") + ".py"))
    for at in (own, ""):
        files = [n for n in names if os.path.isfile(f"{at}/skills/{n}")]
        if len(files) > 1:
            raise ImportError(f"{' and '.join(files)} are both imported as {fullname}: remove one", name=fullname)
        if files:
            file = f"{at}/skills/{files[0]}"
            spec = sys.modules["_frozen_importlib"].ModuleSpec(fullname, Loader(fullname, file), origin=file)
            spec.has_location = True
            return spec
    return None


def prepare_imports():
    own = os.path.dirname(__file__)
    sys.path[:] = [p for p in sys.path if p != own]  # Python itself adds own, as main.py's directory
    skills = type(sys)("skills")
    skills.__path__ = []
    sys.modules["skills"] = skills
    sys.meta_path.append(SkillFinder)
    sys.path_hooks.insert(0, SkillPath.open_path)
    if AuthorityFinder.authority:
        sys.meta_path.insert(0, AuthorityFinder)


class AuthorityFinder:
    """Makes ssl trust the proxy beside each file of authorities that code loads.

    Some SDKs, such as Stripe's, bring such a file, and only the proxy can answer them. ssl is changed when code imports
    it, because the import takes time.
    """

    authority = os.environ.get("SSL_CERT_FILE")

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname != "ssl":
            return None
        spec = sys.modules["_frozen_importlib_external"].PathFinder.find_spec(fullname)
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            load = module.SSLContext.load_verify_locations

            def load_verify_locations(self, *given, **named):
                load(self, *given, **named)
                load(self, AuthorityFinder.authority)

            module.SSLContext.load_verify_locations = load_verify_locations

        spec.loader.exec_module = exec_module
        return spec


def add_packages(folders):
    """Makes packages importable, after the standard library and before the machine's own packages."""
    at = next((i for i, p in enumerate(sys.path) if p.endswith("-packages")), len(sys.path))
    sys.path[at:at] = folders


def keep_modules():
    """Keeps all loaded modules until the process ends. Freeing them would take longer than the rest of a run.

    Python never frees frozen objects that refer to themselves, and never clears modules outside of sys.modules. It
    frees the code's objects as usual, which writes and closes files. So __main__ becomes a new module, not frozen.
    """
    import atexit
    import gc

    kept = {name: m for name, m in sys.modules.items() if name not in ("__main__", "builtins", "sys")}
    kept[None] = [kept] + [vars(m) for m in kept.values()]
    old = vars(sys.modules["__main__"])
    gc.freeze()
    sys.modules["__main__"] = main = type(sys)("__main__")
    vars(main).update(old)

    @atexit.register  # registered first, so called last
    def remove_modules():
        for name in kept:
            sys.modules.pop(name, None)


ALLOW_TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, without importing ast


def compile_top_level_await(path):
    """Returns main.py compiled as a coroutine if it compiles only with top-level await, else None."""
    with open(path, "rb") as f:
        source = f.read()
    if b"await" not in source and b"async" not in source:
        return None
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns when it compiles main.py again
        try:
            compile(source, path, "exec", dont_inherit=True)
            return None
        except (SyntaxError, ValueError):
            pass
        try:
            return compile(source, path, "exec", ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        except (SyntaxError, ValueError):
            return None  # Python reports the error when it runs main.py


def run_async(code, path):
    """Runs main.py as a coroutine, and exits as Python does at the end of a program."""
    import asyncio

    sys.path.insert(0, os.path.dirname(path))
    main = sys.modules["__main__"].__dict__
    main["__file__"] = path
    main.pop("__cached__", None)
    status = 0
    try:
        asyncio.run(eval(code, main))
    except SystemExit as e:
        status = e.code
        if status is None:
            status = 0
        elif not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except BaseException as e:
        trace = e.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next
        sys.excepthook(type(e), e.with_traceback(trace or e.__traceback__), trace)
        status = 1
    exit_process(status)


def exit_process(status):
    """Ends the process as Python does: joins threads, calls exit functions, and frees the code's objects."""
    import atexit
    import gc
    import io

    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    files = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
    for f in [f for f in gc.get_objects() if issubclass(type(f), files)] + [sys.stdout, sys.stderr]:
        try:
            f.flush()
        except Exception:
            pass
    main = sys.modules["__main__"]
    sys.modules.clear()
    vars(main).clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(status & 0xFF)


def start_run():
    packages = os.environ.pop("CODEFORGE_PACKAGES", "")
    os.environ.pop("PYTHONPATH", None)
    prepare_imports()
    define_show()
    servers = await_order()
    if servers is not None:
        define_mcp(*servers)
    if packages:  # only now, so that no package replaces a module that CodeForge imports
        add_packages(packages.split(":"))
    path = sys.orig_argv[-1]
    code = compile_top_level_await(path)
    if code is not None:
        run_async(code, path)


start_run()
