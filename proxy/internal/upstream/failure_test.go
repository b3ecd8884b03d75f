package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/dialguard"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestSealedWrite: a failed write waits for the end of reading, and no longer.
func TestSealedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		s, start := sealConn(client), time.Now()
		_ = server.Close()
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if _, err := s.Write([]byte("x")); err == nil || time.Since(start) > 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		s = sealConn(client)
		if _, err := s.Write([]byte("x")); err == nil || time.Since(start) != answerTime {
			t.Errorf("without a reader: %v after %s", err, time.Since(start))
		}
	})
}

// TestHints: what a failure tells the model has no setting's file in it, and what it tells a person speaks to a person.
// Neither says no more than to try again later, and neither quotes the cause.
func TestHints(t *testing.T) {
	at := netip.MustParseAddrPort("192.168.7.7:443")
	dial := func(err error) error { return &dialError{at, err} }
	refused := dialguard.Guard{}.CheckAddr(at.Addr())
	for _, row := range []struct {
		code  string
		cause error
		want  string
	}{
		{CodeResolve, errResolve, "api.shop.test has no address"},
		{CodeResolve, fmt.Errorf("%w: %w", errResolve, &net.DNSError{IsTimeout: true}), "The name server did not answer for api.shop.test"},
		{CodeResolve, fmt.Errorf("%w: %w", errResolve, &net.DNSError{IsNotFound: true}), "api.shop.test has no address"},
		{CodeAddress, refused, "resolves to 192.168.7.7, which is a private address"},
		{CodeConnect, dial(&net.OpError{Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}), "resolves to 192.168.7.7:443, which refuses connections"},
		{CodeConnect, dial(&net.OpError{Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}), "resolves to 192.168.7.7:443, which cannot be reached"},
		{CodeConnect, errDial, "UPSTREAM_PROXY"},
		{CodeTimeout, dial(context.DeadlineExceeded), "resolves to 192.168.7.7:443, which did not accept a connection within 10s"},
		{CodeTimeout, context.DeadlineExceeded, "Ask for less in one request"},
		{CodeTLS, x509.UnknownAuthorityError{}, "no known authority has signed the certificate of api.shop.test"},
		{CodeTLS, &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, "has expired"},
		{CodeTLS, x509.HostnameError{Certificate: &x509.Certificate{}, Host: "evil words"}, "is for other names"},
		{CodeTLS, tls.RecordHeaderError{}, "does not speak TLS on its https port. If list_apis shows allow_http for its API, use http://."},
		{CodeTLS, errors.New("x"), "ca_file"},
		{CodeEncoding, nil, "gzip"}, {CodeCharset, nil, "UTF-8"}, {CodeCompressed, nil, "compress"},
		{CodeExhausted, dial(&net.OpError{Err: os.NewSyscallError("socket", syscall.EMFILE)}), "proxy has reached its limit of open files"},
		{CodeExhausted, dial(&net.OpError{Err: os.NewSyscallError("socket", syscall.ENFILE)}), "machine that CodeForge runs on has reached its limit of open files"},
		{CodeBroken, errors.New("evil words"), "ended before the whole response had come"},
		{"unknown", errors.New("evil words"), "ended before the whole response had come"},
	} {
		for _, api := range []string{"shop", ""} {
			r := Failure{Code: row.code, Host: "api.shop.test", API: api, Cause: row.cause}.NewRefusal()
			if api != "" && !strings.Contains(r.Hint, row.want) {
				t.Errorf("%s, %v: %s", row.code, row.cause, r.Hint)
			}
			if api == "" && strings.Contains(r.Hint+r.Person, at.Addr().String()) {
				t.Errorf("%s, %v: of a host in no API, it tells the address: %s", row.code, row.cause, r.Hint)
			}
			if r.Error == "" || strings.Contains(r.Hint+r.Person, "%") || strings.Contains(r.Hint+r.Person, "evil") || strings.Contains(r.Hint, "Try again later") {
				t.Errorf("%s, %v: %+v", row.code, row.cause, r)
			}
			if strings.Contains(r.Hint, "config.json") || strings.Contains(r.Person, "he user") {
				t.Errorf("%s, %v: to the model %q, to a person %q", row.code, row.cause, r.Hint, r.Person)
			}
		}
	}
}

// TestRemedies: a person reads which field of which file to change.
func TestRemedies(t *testing.T) {
	for _, row := range []struct {
		api   string
		cause error
		want  string
	}{
		{"shop", tls.RecordHeaderError{}, `If the service has no certificate, set "allow_http": true in apis/shop/config.json and use http://. Otherwise check the host.`},
		{"", tls.RecordHeaderError{}, `"allow_http": true in apis/<name>/config.json`},
		{"", x509.UnknownAuthorityError{}, `"ca_file" of apis/<name>/config.json`},
		{"shop", errResolve, `Check "domains" in apis/shop/config.json, and that machine's internet access.`},
	} {
		r := Failure{Code: ClassifyError(row.cause), Host: "api.shop.test", API: row.api, Cause: row.cause}.NewRefusal()
		if !strings.Contains(r.Person, row.want) {
			t.Errorf("%v of %q: %s", row.cause, row.api, r.Person)
		}
	}
}

// TestOutOfFiles: if the proxy has no file descriptor left, no hint sends its reader to the host or to DNS, whether the
// name or the address came last.
func TestOutOfFiles(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	resolved, asked := newPool(t, Config{Resolve: at127}), newPool(t, Config{})
	system := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = system })
	net.DefaultResolver = &net.Resolver{PreferGo: true} // as in the product, which is built without cgo
	var was syscall.Rlimit
	testkit.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	t.Cleanup(func() { testkit.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)) })
	testkit.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: min(was.Cur, 256), Max: was.Max}))
	for err := error(nil); err == nil; {
		var f *os.File
		if f, err = os.Open(os.DevNull); err == nil {
			defer f.Close()
		}
	}
	want := Want{APIs: []*catalog.API{{Name: "shop", AllowPrivate: loopback}}}
	for name, p := range map[string]*Pool{"resolved": resolved, "asked": asked} {
		_, err := get(t, p, "http://files.shop.test:"+port+"/", want)
		r := Failure{Code: ClassifyError(err), Host: "files.shop.test", API: "shop", Cause: err}.NewRefusal()
		if r.Code != CodeExhausted || !strings.Contains(r.Hint, "limit of open files") || strings.Contains(r.Hint, "DNS") {
			t.Errorf("%s: %v: %+v", name, err, r)
		}
	}
}

// TestMalformed: the hint for a response that is no valid HTTP names what is wrong with it, and quotes nothing of it.
func TestMalformed(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, row := range map[string]struct{ answer, want string }{
		"long":           {ok + "Evil: " + strings.Repeat("a", 300<<10) + "\r\n\r\n", "has headers of more than 256 KiB"},
		"list of length": {ok + "Content-Length: 11, 11\r\n\r\nhello world", "Content-Length header that is not one number"},
		"two lengths":    {ok + "Content-Length: 11\r\nContent-Length: 12\r\n\r\nhello world", "Content-Length header that is not one number"},
		"no length":      {ok + "Content-Length:\r\n\r\nhello world", "Content-Length header that is not one number"},
		"identity":       {ok + "Transfer-Encoding: identity\r\n\r\nhello", "Transfer-Encoding header other than"},
		"two encodings":  {ok + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\nhello", "Transfer-Encoding header other than"},
		"blank line":     {"\r\n" + ok + "\r\nhello", "does not begin with a line like"},
		"evil line":      {"evil Content-Length\r\n\r\n", "does not begin with a line like"},
		"evil status":    {"HTTP/1.1 evil OK\r\n\r\n", "does not begin with a line like"},
		"no colon":       {ok + "evil Content-Length\r\n\r\n", "has a header line that is not"},
		"break":          {ok + "Content-Length: 5\r\n", "ended before the whole response had come"},
		"nothing":        {"", "ended before the whole response had come"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			testkit.Must(t, err)
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = http.ReadRequest(bufio.NewReader(c))
					_, _ = io.WriteString(c, row.answer)
					_ = c.(*net.TCPConn).CloseWrite()
				}
			}()
			p := newPool(t, Config{Resolve: at127, Connect: to(l.Addr().String(), new(atomic.Int32))})
			_, err = get(t, p, "http://api.shop.test/", Want{APIs: []*catalog.API{{Name: "shop", AllowPrivate: loopback}}})
			r := Failure{Code: ClassifyError(err), Host: "api.shop.test", API: "shop", Cause: err}.NewRefusal()
			if r.Code != CodeBroken || !strings.Contains(r.Hint, row.want) || strings.Contains(r.Hint, "evil") {
				t.Errorf("%.200v: %+v", err, r)
			}
		})
	}
}

// TestLongHTTP2Head: TestMalformed over HTTP/2, where a long head has another error.
func TestLongHTTP2Head(t *testing.T) {
	s := newSite(t, "h2")
	for _, n := range []int{1, 3, 30, 3000} { // headers of 300 KiB together
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := range n {
				w.Header().Set(fmt.Sprint("Evil-", i), strings.Repeat("a", (300<<10)/n))
			}
		})
		p, w := s.pool(t)
		_, err := get(t, p, "https://example.com/", w)
		if r := (Failure{Code: ClassifyError(err), Host: "example.com", Cause: err}).NewRefusal(); !strings.Contains(r.Hint, "more than 256 KiB") {
			t.Errorf("%d: %v: %+v", n, err, r)
		}
	}
}
