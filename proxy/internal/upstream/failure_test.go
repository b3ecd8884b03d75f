package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/internal/dialguard"
)

// TestHints: what a failure tells the model has no setting's file in it, and what it tells a person speaks to a person.
// Neither says no more than to try again later, and neither quotes the cause.
func TestHints(t *testing.T) {
	at := netip.MustParseAddrPort("192.168.7.7:443")
	dial := func(err error) error { return &dialError{at, err} }
	refused := dialguard.Guard{}.Check(at.Addr())
	for _, row := range []struct {
		code  string
		cause error
		want  string
	}{
		{CodeResolve, errResolve, "api.shop.test has no address"},
		{CodeResolve, fmt.Errorf("%w: %w", errResolve, &net.DNSError{IsTimeout: true}), "The name server did not answer for api.shop.test"},
		{CodeResolve, fmt.Errorf("%w: %w", errResolve, &net.DNSError{IsNotFound: true}), "api.shop.test has no address"},
		{CodeAddress, refused, "leads to 192.168.7.7, which is a private address"},
		{CodeConnect, dial(&net.OpError{Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}), "leads to 192.168.7.7:443, where nothing listens"},
		{CodeConnect, dial(&net.OpError{Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}), "leads to 192.168.7.7:443, which cannot be reached"},
		{CodeConnect, errDial, "UPSTREAM_PROXY"},
		{CodeTimeout, dial(context.DeadlineExceeded), "leads to 192.168.7.7:443, which did not accept a connection within 10s"},
		{CodeTimeout, context.DeadlineExceeded, "Ask for less in one request"},
		{CodeTLS, x509.UnknownAuthorityError{}, "no known authority has signed the certificate of api.shop.test"},
		{CodeTLS, &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, "has expired"},
		{CodeTLS, x509.HostnameError{Certificate: &x509.Certificate{}, Host: "evil words"}, "is for other names"},
		{CodeTLS, tls.RecordHeaderError{}, "does not speak TLS"},
		{CodeTLS, errors.New("x"), "ca_file"},
		{CodeEncoding, nil, "gzip"}, {CodeCharset, nil, "UTF-8"}, {CodeCompressed, nil, "compress"},
		{CodeBroken, errors.New("evil words"), "ended before the whole response had come"},
		{"unknown", errors.New("evil words"), "ended before the whole response had come"},
	} {
		for _, api := range []string{"shop", ""} {
			r := Failure{Code: row.code, Host: "api.shop.test", API: api, Cause: row.cause}.Refusal()
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
