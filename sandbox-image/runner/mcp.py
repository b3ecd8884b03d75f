# The builtins of a run: mcp, parallel, stash and McpError. sitecustomize.py runs this with `servers`, which maps the
# names of the run's MCP servers to their known tool names. Code can replace the builtins, so only the proxy decides
# which calls a run may make.

import base64
import http.client
import json
import os
import re
import select
import ssl
import threading
import uuid
from urllib.parse import quote

HOST = "mcp.codeforge.internal"
_folder = os.getcwd()  # the run's folder, or /tmp


class McpError(Exception):
    """A failed call. `text`, `structured` and `data` are the server's; `code`, `retryable` and `hint` CodeForge's."""

    def __init__(self, message, server="", tool="", code="", retryable=False, hint="", text=None, structured=None,
                 data=None):
        super().__init__(message)
        self.message = message
        self.server, self.tool, self.code, self.retryable = server, tool, code, retryable
        self.hint, self.text, self.structured, self.data = hint, text, structured, data


McpError.__module__ = "builtins"

_local = threading.local()


class _Cancelled(Exception):
    """The task that awaits a call was cancelled before the call was sent."""


class _Wait:
    """The connection of a call under way. Cancelling the task shuts it down."""

    def __init__(self):
        self.lock, self.connection, self.over = threading.Lock(), None, False

    def use(self, connection):
        if connection.sock is None:
            connection.connect()  # cancel needs a socket
        with self.lock:
            if self.over:
                raise _Cancelled()
            self.connection = connection

    def cancel(self):
        with self.lock:
            self.over = True
            if self.connection is not None and self.connection.sock is not None:
                try:
                    self.connection.sock.shutdown(2)
                except OSError:
                    pass


def _get_connection():
    """Returns the connection of this thread. A readable idle one has been closed, so a new one replaces it."""
    c = getattr(_local, "connection", None)
    if c is not None and c.sock is not None and not select.select([c.sock], [], [], 0)[0]:
        return c
    if c is not None:
        c.close()
    c = _local.connection = http.client.HTTPSConnection(HOST, context=ssl.create_default_context())
    return c


class _Call:
    """A request to a tool of a server. timeout is in seconds."""

    def __init__(self, server, tool, timeout=None, wait=None):
        self.server, self.tool, self.timeout, self.wait = server, tool, timeout, wait

    def make_error(self, why, code, hint="", **about):
        where = f"{self.server}.{self.tool}"
        message = why if why.startswith(where) else f"{where}: {why}"
        if hint:
            message += (" " if message[-1:] in ".!?" else ". ") + hint
        return McpError(message, self.server, self.tool, code, hint=hint, **about)

    def send(self, method, path, value=None):
        headers, body = {}, None
        if self.timeout is not None:
            headers["Codeforge-Timeout-Ms"] = str(int(self.timeout * 1000))
        if method == "POST":
            headers["Content-Type"] = "application/json"
            try:
                body = json.dumps(value, allow_nan=False).encode()
            except (TypeError, ValueError) as e:
                raise self.make_error(f"the arguments cannot be written as JSON: {e}", "bad_arguments") from None
        target = "/" + "/".join(self.escape_segment(p) for p in path)
        c = _get_connection()
        try:
            if self.wait is not None:
                self.wait.use(c)
            c.request(method, target, body, headers)
            response = c.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as e:
            c.close()
            raise self.make_error(f"the connection broke: {e or type(e).__name__}", "connection_lost") from e
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None  # an answer that is not from CodeForge
        if response.status == 200 and isinstance(answer, dict):
            return answer
        about = answer if isinstance(answer, dict) else {}
        raise self.make_error(
            str(about.get("error") or f"the answer had status {response.status}"), about.get("code") or "bad_answer",
            hint=str(about.get("hint") or ""), retryable=about.get("retryable") is True, data=about.get("data"))

    def escape_segment(self, name):
        if name in ("", ".", ".."):
            raise self.make_error(f"{name!r} is no name", "bad_arguments")
        return quote(name, safe="$")

    def read_result(self, answer):
        """Returns the result of a call from a CallToolResult. Raises McpError if the tool failed."""
        blocks = [b if isinstance(b, dict) else {"type": "text", "text": b} for b in _to_list(answer.get("content"))]
        text = "\n".join(_to_text(b.get("text")) for b in blocks if b.get("type") == "text")
        structured = answer.get("structuredContent")
        if answer.get("isError"):
            raise self.make_error(
                text or "the tool failed without a reason", "tool_error", hint=answer.get("_hint") or "",
                text=text, structured=structured)
        if structured is not None:
            return structured
        if "content" not in answer:  # e.g. toolResult of 2024
            rest = {k: v for k, v in answer.items() if k not in ("isError", "_schema", "_hint", "_meta", "resultType",
                                                                 "structuredContent")}
            if rest:
                return rest
        if any(b.get("type") != "text" for b in blocks):
            every = [self.convert_block(b) for b in blocks]
            return every[0] if len(every) == 1 else every
        if answer.get("_schema") or not re.match(r"\s*[\[{]", text):
            return text
        try:
            return json.loads(text)
        except ValueError:
            return text

    def convert_block(self, b):
        """Returns the text of a content block, or a file for an image, sound or blob, or else the block itself."""
        kind = b.get("type")
        if kind == "text":
            return _to_text(b.get("text"))
        if kind in ("image", "audio"):
            return self.save_file(b.get("data"), b.get("mimeType"))
        if kind == "resource":
            return self.convert_resource(b.get("resource"))
        return b

    def convert_resource(self, r):
        if not isinstance(r, dict) or r.get("blob") is None:
            return r
        return {"uri": r.get("uri"), **self.save_file(r["blob"], r.get("mimeType"))}

    def save_file(self, data, mime):
        mime = str(mime or "application/octet-stream")
        found = re.match(r"\w+/(?:x-)?([a-z0-9]{1,10})\b", mime)
        kind = found[1] if found else "bin"
        kind = {"plain": "txt", "jpeg": "jpg", "mpeg": "mp3", "octet": "bin"}.get(kind, kind)
        try:
            raw = base64.b64decode(data, validate=True)
        except (TypeError, ValueError):
            raise self.make_error(f"sent {mime} that is not base64", "server_error") from None
        path = f"{_folder}/mcp-{str(uuid.uuid4())[:13]}.{kind}"
        with open(path, "xb") as f:
            f.write(raw)
        return {"path": path, "mimeType": mime, "bytes": len(raw)}


# The protocol wants a list of blocks, with strings as texts. Some servers send one block, a string, or a value.
def _to_list(value):
    return value if isinstance(value, list) else [] if value is None else [value]


def _to_text(value):
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _merge_arguments(call, given, named):
    """Returns the arguments of a tool from one dict, keywords, or both. A keyword replaces the same key."""
    if len(given) > 1 or given and not isinstance(given[0], dict):
        raise call.make_error("want keyword arguments, or one dict", "bad_arguments")
    return {**(given[0] if given else {}), **named}


class _Tool:
    """A tool of a server. Code calls it with keyword arguments, one dict, or both."""

    def __init__(self, server, name):
        self._server, self._name = server, name

    def __repr__(self):
        return f"<tool {self._server}.{self._name}>"

    def __call__(self, *given, **named):
        return self.call(_Call(self._server, self._name), given, named)

    def call(self, call, given, named):
        try:
            return call.read_result(call.send("POST", [self._server, self._name], _merge_arguments(call, given, named)))
        except McpError as e:
            raise e.with_traceback(None)

    def raw(self, *given, **named):
        """Returns the CallToolResult itself, also if the tool failed."""
        call = _Call(self._server, self._name)
        answer = call.send("POST", [self._server, self._name], _merge_arguments(call, given, named))
        return {k: v for k, v in answer.items() if k not in ("_schema", "_hint")}

    def within(self, seconds):
        """Returns the same tool with a time limit in seconds for each call, but not for raw."""
        limited = type(self)(self._server, self._name)
        limited.call = lambda call, given, named: _Tool.call(
            limited, _Call(call.server, call.tool, seconds, call.wait), given, named)
        return limited


class _AioTool(_Tool):
    """A tool whose calls are coroutines. Cancelling one cancels the request."""

    async def __call__(self, *given, **named):
        import asyncio

        wait = _Wait()
        work = asyncio.get_running_loop().run_in_executor(
            _get_executor(), lambda: self.call(_Call(self._server, self._name, wait=wait), given, named))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            wait.cancel()
            work.add_done_callback(lambda w: w.cancelled() or w.exception())  # or asyncio logs the error
            raise

    async def raw(self, *given, **named):
        return await _run_in_thread(super().raw, *given, **named)


_pool = None


def _get_executor():
    global _pool
    if _pool is None:
        from concurrent.futures import ThreadPoolExecutor

        _pool = ThreadPoolExecutor(32, "mcp")
    return _pool


async def _run_in_thread(work, *given, **named):
    import asyncio

    return await asyncio.get_running_loop().run_in_executor(_get_executor(), lambda: work(*given, **named))


class _Server:
    def __init__(self, name, tools, kind):
        self._name, self._tools, self._kind = name, {t: kind(name, t) for t in tools}, kind

    def __repr__(self):
        names = ", ".join(self._tools)
        return f"mcp.{self._name} {{ {names or 'its tools are not known yet'} }}"

    def __dir__(self):
        return list(self._tools)

    def __getitem__(self, tool):
        special = {"$tools": self._list, "$resources": self._resources, "$read": self._read, "$prompt": self._prompt}
        if tool in special and self._kind is _AioTool:
            return lambda *given, **named: _run_in_thread(special[tool], *given, **named)
        if tool in special:
            return special[tool]
        return self._tools.get(tool) or self._kind(self._name, tool)

    def __getattr__(self, tool):
        if tool.startswith("__"):
            raise AttributeError(tool)
        if tool not in self._tools and tool.replace("_", "-") in self._tools:
            tool = tool.replace("_", "-")
        return self[tool]

    def _list(self):
        tools = _Call(self._name, "$tools").send("GET", [self._name])["tools"]
        for t in tools:
            self._tools.setdefault(t["name"], self._kind(self._name, t["name"]))
        return tools

    def _resources(self):
        return _Call(self._name, "$resources").send("GET", [self._name, "$resources"])

    def _read(self, uri):
        call = _Call(self._name, "$read")
        answer = call.send("POST", [self._name, "$read"], {"uri": uri})
        return {**answer, "contents": [call.convert_resource(r) for r in _to_list(answer.get("contents"))]}

    def _prompt(self, name, arguments=None):
        call = _Call(self._name, "$prompt")
        answer = call.send("POST", [self._name, "$prompt"], {"name": name, "arguments": arguments or {}})
        for m in _to_list(answer.get("messages")):
            if isinstance(m.get("content"), dict) and m["content"].get("type") != "text":
                m["content"] = call.convert_block(m["content"])
        return answer


class _Servers:
    """The MCP servers of a run, by name."""

    def __init__(self, kind):
        self._kind, self._made = kind, {}

    def __repr__(self):
        parts = [f"{n}: {len(t)} tools" if t else n for n, t in servers.items()]
        return f"mcp {{ {', '.join(parts)} }}"

    def __dir__(self):
        return list(servers)

    def __getitem__(self, name):
        if name not in self._made:
            self._made[name] = _Server(name, servers.get(name, []), self._kind)
        return self._made[name]

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in servers and name.replace("_", "-") in servers:
            name = name.replace("_", "-")
        return self[name]


mcp = _Servers(_Tool)
mcp.aio = _Servers(_AioTool)


class _Settled(dict):
    """The result of one call: {"status": "fulfilled", "value": ...} or {"status": "rejected", "reason": exception}."""

    __getattr__ = dict.get


def parallel(calls, limit=8):
    """Runs functions, at most `limit` at once, and returns the result of each in order."""
    from concurrent.futures import ThreadPoolExecutor

    def settle(call):
        try:
            return _Settled(status="fulfilled", value=call())
        except Exception as e:
            return _Settled(status="rejected", reason=e)

    calls = list(calls)
    with ThreadPoolExecutor(max(1, min(limit, len(calls) or 1)), "parallel") as pool:
        return list(pool.map(settle, calls))


class _Stash:
    """Stores values for later runs of the same MCP session, in Python and TypeScript."""

    def get(self, key, default=None):
        value = _Call("stash", "get").send("POST", ["$stash", "get"], {"key": key}).get("value")
        return default if value is None else value

    def set(self, key, value, ttl=None):
        """Stores a value that JSON can represent, for `ttl` seconds (default: 1 hour)."""
        about = {} if ttl is None else {"ttl_ms": int(ttl * 1000)}
        _Call("stash", "set").send("POST", ["$stash", "set"], {"key": key, "value": value, **about})

    def delete(self, key):
        _Call("stash", "delete").send("POST", ["$stash", "delete"], {"key": key})

    def keys(self):
        return _Call("stash", "keys").send("POST", ["$stash", "keys"], {})["keys"]


stash = _Stash()
