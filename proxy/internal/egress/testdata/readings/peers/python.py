"""Reports how Python's parsers read each request: http.server, cgi, Django, Werkzeug, Tornado, WebOb, Bottle, Starlette.
CherryPy listens on a port of its own. Prints the two ports, the one of CherryPy 0 where it is not installed."""
import asyncio
import email
import http.server
import io
import json
import sys
import threading
import traceback
import urllib.parse
import warnings

warnings.simplefilter("ignore")


def text(v):
    if isinstance(v, bytes):
        return v.decode("utf-8", "replace")
    return str(v)


def leaves(place, value, name="", out=None):
    out = [] if out is None else out
    if isinstance(value, dict):
        for k, v in value.items():
            leaves(place, v, text(k) if name == "" else name + "." + text(k), out)
    elif isinstance(value, (list, tuple)):
        for v in value:
            leaves(place, v, name, out)
    else:
        out.append([place, name, text(value)])
    return out


def attempt(read):
    try:
        return read(), ""
    except Exception as e:  # whatever a parser raises is its refusal
        return [], type(e).__name__ + ": " + str(e)[:200]


def environ_of(h, body):
    """As wsgiref makes it."""
    path, _, query = h.path.partition("?")
    env = {
        "REQUEST_METHOD": h.command, "SCRIPT_NAME": "", "PATH_INFO": urllib.parse.unquote(path, "iso-8859-1"),
        "QUERY_STRING": query, "SERVER_NAME": "h", "SERVER_PORT": "80", "SERVER_PROTOCOL": h.request_version,
        "REMOTE_ADDR": "127.0.0.1", "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.errors": io.StringIO(),
        "wsgi.multithread": False, "wsgi.multiprocess": False, "wsgi.run_once": False,
        "wsgi.input": io.BytesIO(body), "wsgi.input_terminated": True, "CONTENT_LENGTH": str(len(body)),
    }
    if h.headers.get("Content-Type") is not None:
        env["CONTENT_TYPE"] = h.headers.get("Content-Type")
    for k, v in h.headers.items():
        k = k.replace("-", "_").upper()
        v = v.strip()
        if k in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            continue
        k = "HTTP_" + k
        env[k] = env[k] + "," + v if k in env else v
    return env


def head(h, env):
    out = [["header", k.lower(), text(v)] for k, v in h.headers.items()]
    out += [["header", k[5:].lower().replace("_", "-"), text(v)] for k, v in env.items() if k.startswith("HTTP_")]
    path = h.path.partition("?")[0]
    out += [["path", "", env["PATH_INFO"]], ["path", "", urllib.parse.urlsplit(h.path).path]]
    out.append(["path", "", urllib.parse.unquote(urllib.parse.urlparse(path).path)])
    return out


READERS = []  # (name, modules needed, function(env, body, type) -> [(reader, kind, method, (fields, error))])


def reader(f):
    READERS.append(f)
    return f


def form_kind(kind):
    return "multipart" if kind.startswith("multipart") else "form"


@reader
def stdlib():
    try:
        import cgi  # until Python 3.13
    except ImportError:
        cgi = None

    def read(env, body, kind):
        m = env["REQUEST_METHOD"]
        q = env["QUERY_STRING"]
        yield "python", "query", m, attempt(lambda: [["query", k, v] for k, v in urllib.parse.parse_qsl(q, True)])
        if not body:
            return
        if "urlencoded" in kind or kind == "":
            yield "python", "form", m, attempt(
                lambda: [["body", k, v] for k, v in urllib.parse.parse_qsl(body.decode("utf-8"), True)])
        if cgi and (kind.startswith("multipart") or "urlencoded" in kind):
            def fields():
                out = []
                e = dict(env, QUERY_STRING="")
                fs = cgi.FieldStorage(fp=io.BytesIO(body), environ=e, keep_blank_values=True)
                for f in fs.list or []:
                    place = "file" if f.filename is not None else "body"
                    if f.filename is not None:
                        out.append(["filename", text(f.name), text(f.filename)])
                    out.append([place, text(f.name), text(f.value)])
                return out
            yield "python-cgi", form_kind(kind), m, attempt(fields)
        if kind.startswith("multipart"):
            def mail():
                out = []
                raw = b"Content-Type: " + env.get("CONTENT_TYPE", "").encode("latin-1") + b"\r\n\r\n" + body
                for p in email.message_from_bytes(raw).walk():
                    if p.is_multipart():
                        continue
                    name = p.get_param("name", header="content-disposition")
                    name = name[2] if isinstance(name, tuple) else name
                    filename = p.get_filename()
                    payload = p.get_payload(decode=True) or b""
                    if filename is not None:
                        out.append(["filename", text(name), text(filename)])
                    out.append(["file" if filename is not None else "body", text(name), text(payload)])
                return out
            yield "python-email", "multipart", m, attempt(mail)
        which = "json" if "json" in kind else "untyped"
        yield "python-json", which, m, attempt(lambda: leaves("body", json.loads(body)))
    return read


@reader
def django():
    from django.conf import settings
    settings.configure(ALLOWED_HOSTS=["*"], DEBUG=False, DEFAULT_CHARSET="utf-8")
    import django
    django.setup()
    from django.core.handlers.wsgi import WSGIRequest

    def read(env, body, kind):
        make = lambda: WSGIRequest(dict(env, **{"wsgi.input": io.BytesIO(body)}))
        m = env["REQUEST_METHOD"]
        yield "django", "head", m, attempt(lambda: [["path", "", make().path_info]] + [
            ["header", k.lower(), v] for k, v in make().headers.items()] + leaves("header", make().COOKIES, "cookie"))
        yield "django", "query", m, attempt(lambda: [["query", k, v] for k, l in make().GET.lists() for v in l])
        if body and m == "POST" and (kind.startswith("multipart/form-data") or "urlencoded" in kind):
            def fields():
                r = make()
                out = [["body", k, v] for k, l in r.POST.lists() for v in l]
                for k, l in r.FILES.lists():
                    for f in l:
                        out += [["filename", k, text(f.name)], ["file", k, text(f.read())]]
                return out
            yield "django", form_kind(kind), m, attempt(fields)
    return read


@reader
def werkzeug():
    from werkzeug.wrappers import Request

    def read(env, body, kind):
        make = lambda: Request(dict(env, **{"wsgi.input": io.BytesIO(body)}))
        m = env["REQUEST_METHOD"]

        def top():
            r = make()
            out = [["path", "", r.path]] + [["header", k.lower(), v] for k, v in r.headers.items()]
            a = r.authorization
            if a is not None and a.type == "basic":
                out += [["auth", "user", text(a.username)], ["auth", "password", text(a.password)]]
            elif a is not None:
                out += [["header", "authorization", text(v)] for v in dict(a).values()]
            return out + leaves("header", r.cookies.to_dict(False), "cookie")
        yield "werkzeug", "head", m, attempt(top)
        yield "werkzeug", "query", m, attempt(lambda: [["query", k, v] for k, v in make().args.items(multi=True)])
        if not body:
            return
        if kind.startswith("multipart/form-data") or "urlencoded" in kind:
            def fields():
                r = make()
                out = [["body", k, v] for k, v in r.form.items(multi=True)]
                for k, f in r.files.items(multi=True):
                    out += [["filename", k, text(f.filename)], ["file", k, text(f.read())]]
                return out
            yield "werkzeug", form_kind(kind), m, attempt(fields)
        if make().is_json:
            yield "werkzeug", "json", m, attempt(lambda: leaves("body", make().get_json()))
    return read


@reader
def tornado():
    from tornado.httputil import HTTPHeaders, parse_body_arguments
    import logging
    logging.getLogger("tornado.general").disabled = True

    def read(env, body, kind):
        m = env["REQUEST_METHOD"]
        if not body or not (kind.startswith("multipart") or "urlencoded" in kind):
            return

        def fields():
            args, files = {}, {}
            parse_body_arguments(env.get("CONTENT_TYPE", ""), body, args, files)
            out = [["body", k, text(v)] for k, l in args.items() for v in l]
            for k, l in files.items():
                for f in l:
                    out += [["filename", k, text(f["filename"])], ["file", k, text(f["body"])]]
            return out
        yield "tornado", form_kind(kind), m, attempt(fields)
    return read


@reader
def webob():
    from webob import Request

    def read(env, body, kind):
        make = lambda: Request(dict(env, **{"wsgi.input": io.BytesIO(body)}))
        m = env["REQUEST_METHOD"]
        yield "webob", "query", m, attempt(lambda: [["query", k, v] for k, v in make().GET.items()])
        if body and (kind.startswith("multipart") or "urlencoded" in kind or kind == ""):
            def fields():
                out = []
                for k, v in make().POST.items():
                    if hasattr(v, "filename"):
                        out += [["filename", k, text(v.filename)], ["file", k, text(v.file.read())]]
                    else:
                        out.append(["body", k, text(v)])
                return out
            yield "webob", form_kind(kind), m, attempt(fields)
        if body and "json" in kind:
            yield "webob", "json", m, attempt(lambda: leaves("body", make().json))
    return read


@reader
def bottle():
    from bottle import BaseRequest

    def read(env, body, kind):
        make = lambda: BaseRequest(dict(env, **{"wsgi.input": io.BytesIO(body)}))
        m = env["REQUEST_METHOD"]
        yield "bottle", "query", m, attempt(lambda: [["query", k, text(v)] for k, v in make().query.allitems()])
        if not body:
            return
        if kind.startswith("multipart") or "urlencoded" in kind or kind == "":
            def fields():
                r = make()
                out = [["body", k, text(v)] for k, v in r.forms.allitems()]
                for k, f in r.files.allitems():
                    out += [["filename", k, text(f.raw_filename)], ["file", k, text(f.file.read())]]
                return out
            yield "bottle", form_kind(kind), m, attempt(fields)
        if "json" in kind:
            yield "bottle", "json", m, attempt(lambda: leaves("body", make().json))
    return read


@reader
def starlette():
    from starlette.requests import Request
    import multipart  # what its forms are read with

    def read(env, body, kind):
        m = env["REQUEST_METHOD"]
        if not body or not (kind.startswith("multipart/form-data") or "urlencoded" in kind):
            return

        async def form():
            async def receive():
                return {"type": "http.request", "body": body, "more_body": False}
            scope = {"type": "http", "method": m, "path": "/", "query_string": b"",
                     "headers": [(b"content-type", env.get("CONTENT_TYPE", "").encode("latin-1"))]}
            out = []
            for k, v in (await Request(scope, receive).form()).multi_items():
                if hasattr(v, "filename"):
                    out += [["filename", k, text(v.filename)], ["file", k, text(await v.read())]]
                else:
                    out.append(["body", k, text(v)])
            return out
        yield "starlette", form_kind(kind), m, attempt(lambda: LOOP.run_until_complete(form()))
    return read


LOOP = asyncio.new_event_loop()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    readers = []

    def log_message(self, *args):
        pass

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        env = environ_of(self, body)
        kind = env.get("CONTENT_TYPE", "").lower().strip()
        out = [{"reader": "http.server", "kind": "head", "method": self.command, "fields": head(self, env), "error": ""}]
        for read in self.readers:
            try:
                for name, k, method, (fields, error) in read(env, body, kind):
                    out.append({"reader": name, "kind": k, "method": method, "fields": fields, "error": error})
            except Exception as e:  # it answers 500
                out.append({"reader": "python", "kind": "refused", "method": "", "fields": [], "error": repr(e)})
        data = json.dumps({"readings": out}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True


def cherry():
    """CherryPy's own server, as its applications see a request."""
    try:
        import cherrypy
    except ImportError:
        return 0

    class Root:
        @cherrypy.expose
        def default(self, *path, **params):
            r = cherrypy.request
            fields = [["header", k.lower(), text(v)] for k, v in r.headers.items()]
            fields += [["path", "", r.path_info]] + [["path", "", text(p)] for p in path]
            fields += leaves("header", {k: v.value for k, v in r.cookie.items()}, "cookie")
            kind = r.headers.get("Content-Type", "").lower()
            query = leaves("query", {k: v for k, v in params.items() if k not in (r.body.params or {})})
            out = [{"reader": "cherrypy", "kind": "head", "method": r.method, "fields": fields, "error": ""},
                   {"reader": "cherrypy", "kind": "query", "method": r.method, "fields": query, "error": ""}]
            if r.body.params:
                found = []
                for k, v in r.body.params.items():
                    for p in v if isinstance(v, list) else [v]:
                        if hasattr(p, "file"):
                            found += [["filename", text(k), text(p.filename)], ["file", text(k), text(p.file.read() if p.file else "")]]
                        else:
                            found.append(["body", text(k), text(p)])
                out.append({"reader": "cherrypy", "kind": form_kind(kind), "method": r.method, "fields": found, "error": ""})
            if getattr(r, "json", None) is not None:
                out.append({"reader": "cherrypy", "kind": "json", "method": r.method, "fields": leaves("body", r.json), "error": ""})
            cherrypy.response.headers["Connection"] = "close"
            return json.dumps({"readings": out}).encode()

    cherrypy.config.update({
        "server.socket_host": "127.0.0.1", "server.socket_port": 0, "log.screen": False, "engine.autoreload.on": False,
        "checker.on": False, "environment": "embedded", "server.thread_pool": 2,
    })
    from cheroot.wsgi import Server
    app = cherrypy.tree.mount(Root(), "/", {"/": {
        "tools.json_in.on": True, "tools.json_in.force": False, "tools.trailing_slash.on": False,
        "request.methods_with_bodies": ("POST", "PUT", "PATCH", "DELETE"),
    }})
    server = Server(("127.0.0.1", 0), app, numthreads=2)
    server.prepare()
    threading.Thread(target=server.serve, daemon=True).start()
    return server.bind_addr[1]


def main():
    missing = []
    for make in READERS:
        try:
            Handler.readers.append(make())
        except ImportError as e:
            missing.append(make.__name__)
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], cherry(), ",".join(missing) or "-", flush=True)
    server.serve_forever()


main()
