# Prints its port, and answers each request with the paths that Python's servers take from it, a line each.
import http.server, posixpath, urllib.parse
from werkzeug.routing import Map, Rule
from werkzeug.serving import WSGIRequestHandler
from werkzeug.wrappers import Request, Response
import wsgiref.simple_server

urls = Map([Rule("/v1/admin", endpoint="admin"), Rule("/v1/admin/<path:rest>", endpoint="admin")])


@Request.application
def answer(request):
    raw = request.environ["RAW_URI"].split("?")[0]
    decoded = urllib.parse.unquote(raw)
    out = [request.path, posixpath.normpath(request.path), decoded, urllib.parse.unquote_plus(raw)]
    try:
        urls.bind_to_environ(request.environ).match()
        out.append("/v1/admin")
    except Exception:
        pass
    return Response("".join("reading " + p + "\n" for p in out), mimetype="text/plain")


class Quiet(WSGIRequestHandler):
    def log(self, *a): pass


from werkzeug.serving import make_server
s = make_server("127.0.0.1", 0, answer, request_handler=Quiet)
print(s.port, flush=True)
s.serve_forever()
