package upstream

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
)

// HostsDir is the folder beside the authority's files with a unix socket for each host that is served elsewhere.
const HostsDir = "hosts"

// ReadHosts returns a handler for each socket of a folder, named after the host that it serves. No folder has none.
func ReadHosts(dir string) (map[string]http.Handler, error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	hosts := map[string]http.Handler{}
	for _, entry := range list {
		hosts[entry.Name()] = Forward(filepath.Join(dir, entry.Name()))
	}
	return hosts, nil
}

// Forward passes requests on to the server at a unix socket, which sees https and their host.
func Forward(socket string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "socket", r.In.Host
			r.Out.Header.Set("X-Forwarded-Proto", "https")
			r.Out.Header.Set("X-Forwarded-Host", r.In.Host)
		},
		Transport: Socket(socket), FlushInterval: -1,
	}
}

// Socket is a transport whose requests all go to the server at a unix socket, as they are.
func Socket(path string) *http.Transport {
	return &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
}
