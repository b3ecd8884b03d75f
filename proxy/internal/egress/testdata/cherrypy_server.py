"""A page that shows its visitor's credential beside posted text, as CherryPy serves it with its tools."""

import sys

import cherrypy


class Root:
    @cherrypy.expose
    @cherrypy.tools.encode()
    @cherrypy.tools.gzip(mime_types=["text/*", "application/*"])
    def page(self, text="", json=""):
        key = cherrypy.request.headers.get("Authorization", "").split(" ")[-1]
        filler = "".join("%d," % (i * i) for i in range(200))
        cherrypy.response.headers["X-Asked"] = "; ".join(
            "%s: %s" % (k, v) for k, v in sorted(cherrypy.request.headers.items()) if k.startswith("Accept")
        )
        if json:
            key = "".join("\\u%04x" % ord(c) for c in key)
        return "<p>key=%s</p><p>%s</p><p>%s</p>" % (key, text, filler)

    @cherrypy.expose
    def text(self, charset):
        """Answers in a character set whatever was asked for."""
        cherrypy.response.headers["Content-Type"] = "application/json; charset=" + charset
        key = cherrypy.request.headers.get("Authorization", "").split(" ")[-1]
        return ('{"key": "%s"}' % "".join("\\u%04x" % ord(c) for c in key)).encode(charset)


cherrypy.config.update({
    "server.socket_host": sys.argv[1], "server.socket_port": int(sys.argv[2]), "log.screen": False,
    "engine.autoreload.on": False, "server.thread_pool": 4,
})
cherrypy.quickstart(Root())
