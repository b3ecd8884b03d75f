#!/bin/sh
# peers.sh: installs the server-side parsers that proxy/internal/egress compares the proxy with. The test installs those
# of Node itself, with npm.
set -eu
cd "$(dirname "$0")/.."
make/packages.sh node=nodejs nginx=nginx-light npm=npm php=php-cli ruby=ruby puma=puma ruby-rack perl=perl libcgi-pm-perl \
	/usr/bin/python3=python3 python3-bottle python3-cherrypy3 python3-django python3-multipart python3-starlette \
	python3-tornado python3-webob python3-werkzeug
