package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"

	"github.com/codeforge-mcp/codeforge/internal/dialguard"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// The error codes of a Failure.
const (
	CodeResolve    = "upstream_unresolved"
	CodeAddress    = "address_refused"
	CodeConnect    = "upstream_unreachable"
	CodeTLS        = "upstream_certificate"
	CodeTimeout    = "upstream_timeout"
	CodeBroken     = "upstream_broken"
	CodeEncoding   = "upstream_encoding"
	CodeCharset    = "upstream_charset"
	CodeCompressed = "upstream_compressed"
	CodeExhausted  = "proxy_exhausted"
)

// Failure is an upstream that could not answer.
type Failure struct {
	Code, Host string
	// API is the API that includes the host. If it is empty, the refusal does not reveal the host's addresses.
	API   string
	Cause error
}

// NewRefusal returns the answer to the sandbox. Its texts are constants with the host and the dialled address. Only the
// operator sees the cause, which may quote bytes of the upstream.
func (f Failure) NewRefusal() proxyapi.Refusal {
	r := proxyapi.Refusal{Code: f.Code, Host: f.Host}
	var hint string
	r.Error, hint = f.describeFailure()
	// An unknown code counts as a broken response.
	if r.Error == "" {
		r.Code, r.Error, hint = CodeBroken, "The host's response broke off or is not HTTP.", f.hintBroken()
	}
	addr, private := "", ""
	var dialled *dialError
	var refused *dialguard.RefusedError
	switch {
	case errors.As(f.Cause, &refused):
		addr, private = refused.Addr.Unmap().String(), refused.Private.String()
	case errors.As(f.Cause, &dialled):
		addr = netip.AddrPortFrom(dialled.to.Addr().Unmap(), dialled.to.Port()).String()
	}
	text := readertext.NewText(hint, "%HOST", f.Host, "%API", cmp.Or(f.API, "<name>"), "%ADDR", addr, "%RANGE", private)
	r.Hint, r.Person = text.Model, text.Person
	return r
}

// describeFailure returns the error text, and a hint in the syntax of readertext.NewText. Both are empty for
// CodeBroken.
func (f Failure) describeFailure() (what, hint string) {
	switch f.Code {
	case CodeResolve:
		return "The host name does not resolve.", f.hintUnresolved()
	case CodeAddress:
		return "The host resolves to an address that is not reachable from here.", f.hintRefused()
	case CodeConnect:
		return "The host does not accept the connection.", f.hintUnreachable()
	case CodeTLS:
		return "The host's certificate cannot be verified.", f.hintUnverified()
	case CodeTimeout:
		return "The host did not answer in time.", f.hintLate()
	case CodeExhausted:
		return "The proxy cannot open a connection.", hintExhausted(f.Cause) + " The host is not the cause."
	case CodeEncoding:
		return "The response's encoding cannot be read.", "Request an identity, gzip, deflate, br or zstd response."
	case CodeCharset:
		return "The response is in a character set that cannot be read.", "Request a response in UTF-8."
	case CodeCompressed:
		return "The host compressed its response, although it was asked not to.",
			"The length of a compressed response can reveal a credential that it contains. " +
				"If no response of the API contains one, {the user can set \"compress\": true for the API|" +
				"set \"compress\": true in apis/%API/config.json}."
	}
	return "", ""
}

// hintUnresolved returns the hint for a host without an address.
func (f Failure) hintUnresolved() string {
	if dns, ok := errors.AsType[*net.DNSError](f.Cause); ok && !dns.IsNotFound {
		return "The name server did not answer for %HOST. {Tell the user to check|Check} the DNS of the machine that " +
			"CodeForge runs on{|, or set UPSTREAM_PROXY if only a proxy leads out}."
	}
	const there = "%HOST has no address in the DNS of the machine that CodeForge runs on. "
	if f.API == "" {
		return there + "Check how it is spelt."
	}
	return there + "{Check how it is spelt; the user can correct the domains of the API %API|Check \"domains\" in " +
		"apis/%API/config.json, and that machine's internet access. If only a proxy leads out, set UPSTREAM_PROXY}."
}

// hintRefused returns the hint for a host with a forbidden address.
func (f Failure) hintRefused() string {
	var e *dialguard.RefusedError
	switch {
	case f.API == "" || !errors.As(f.Cause, &e):
		return "Private and special addresses are closed. {The user can|You can} open a private range for an API " +
			"(allow_private)."
	case e.Private.IsValid():
		return "%HOST resolves to %ADDR, which " + e.Why + ". {The user can list|If that is meant, list} %RANGE in " +
			"\"allow_private\" of {the API %API|apis/%API/config.json}."
	}
	return "%HOST resolves to %ADDR, which " + e.Why +
		": it stays closed. {Tell the user to check|Check} the host's DNS entry."
}

// hintUnreachable returns the hint for an address that does not accept a connection.
func (f Failure) hintUnreachable() string {
	switch {
	case !hasCause[*dialError](f.Cause):
		return "The proxy that requests leave through does not accept connections. {Tell the user to check|Check} " +
			"UPSTREAM_PROXY."
	case f.API == "":
		return "Check the host and its port: its address does not accept connections."
	case errors.Is(f.Cause, syscall.ECONNREFUSED):
		return "%HOST resolves to %ADDR, which refuses connections. {Tell the user to check|Check} that the service runs, " +
			"and its address in DNS."
	}
	return "%HOST resolves to %ADDR, which cannot be reached. {Tell the user to check|Check} the network, and the " +
		"host's address in DNS."
}

// hintLate returns the hint for a host that took too long.
func (f Failure) hintLate() string {
	if hasCause[*dialError](f.Cause) && f.API != "" {
		return "%HOST resolves to %ADDR, which did not accept a connection within " + dialTime.String() + ": its service " +
			"is down, or a firewall is in between. {Tell the user to check|Check} that."
	}
	return "%HOST took the request and sent no response. Ask for less in one request, e.g. a smaller page or range of " +
		"time."
}

// hintUnverified returns the hint for a certificate that is not accepted.
func (f Failure) hintUnverified() string {
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](f.Cause)
	switch {
	case hasCause[x509.UnknownAuthorityError](f.Cause):
		return "Not sent: no known authority has signed the certificate of %HOST. {The user can name|Name} its " +
			"authority in \"ca_file\"{ of the API| of apis/%API/config.json}, or in UPSTREAM_CA_FILE for all APIs."
	case hasCause[x509.HostnameError](f.Cause):
		return "Not sent: the certificate is for other names than %HOST. {Tell the user to check|Check} the host."
	case isInvalid && invalid.Reason == x509.Expired:
		return "Not sent: the certificate of %HOST has expired or is not valid yet. {Tell the user to check|Check} " +
			"it, and the clock of the machine that CodeForge runs on."
	case hasCause[tls.RecordHeaderError](f.Cause):
		return "Not sent: %HOST does not speak TLS on its https port. {If list_apis shows allow_http for its API, " +
			"use http://. Otherwise tell the user to check the host|If the service has no certificate, set " +
			"\"allow_http\": true in apis/%API/config.json and use http://. Otherwise check the host}."
	}
	return "Not sent. {The user can name|Name} the API's own certificate authority in \"ca_file\", if it has one."
}

// hintBroken returns the hint for a response that is not valid HTTP.
func (f Failure) hintBroken() string {
	text := ""
	if f.Cause != nil {
		// net/http quotes the upstream's bytes, and the upstream must not choose the hint.
		text, _, _ = strings.Cut(f.Cause.Error(), `"`)
	}
	for _, m := range malformedErrors {
		if strings.Contains(text, m.error) {
			return "%HOST answered, but the response " + m.says + ", so the proxy cannot read it. Repeat a request that only " +
				"reads; if it fails again, {tell the user|correct that service or the gateway in front of it}."
		}
	}
	return "The connection to %HOST ended before the whole response had come, or %HOST does not speak HTTP. Repeat a " +
		"request that only reads; if it fails again, {tell the user|the log of its service may tell more}."
}

// malformedErrors maps parts of net/http's errors about a response head to texts for the user.
var malformedErrors = []struct{ error, says string }{
	{"server response headers exceeded", "has headers of more than 256 KiB together"},
	{"header list larger than", "has headers of more than 256 KiB together"},
	{"connection error: COMPRESSION_ERROR", "has headers of more than 256 KiB together, or broken ones"},
	{"connection error: PROTOCOL_ERROR", "has headers of more than 256 KiB together, or breaks the rules of HTTP/2"},
	{"Content-Length", "has a Content-Length header that is not one number"},
	{"transfer encoding", "has a Transfer-Encoding header other than \"chunked\""},
	{"malformed MIME header", "has a header line that is not \"Name: value\""},
	{"malformed HTTP", "does not begin with a line like \"HTTP/1.1 200 OK\""},
}

// hintExhausted returns the hint for a failed connection if the machine of the proxy has no files, ports or memory
// left. It is empty for other errors.
func hintExhausted(err error) string {
	var dns *net.DNSError
	for _, e := range localErrors {
		// A DNSError contains the text of its cause, but does not unwrap to it.
		if errors.Is(err, e.errno) || errors.As(err, &dns) && strings.HasSuffix(dns.Err, e.errno.Error()) {
			return e.hint
		}
	}
	return ""
}

const awaitFewer = " Await some requests before you start more."

// localErrors are the connection errors that the proxy's own machine causes.
var localErrors = []struct {
	errno syscall.Errno
	hint  string
}{
	{syscall.EMFILE, "CodeForge's proxy has reached its limit of open files." + awaitFewer +
		" {The user can raise|Raise} " +
		"the limit (ulimit -n; nofile of the container)."},
	{syscall.ENFILE, "The machine that CodeForge runs on has reached its limit of open files." + awaitFewer +
		" {The user " +
		"can raise|Raise} the limit (sysctl fs.file-max)."},
	{syscall.ENOBUFS, "The machine that CodeForge runs on has no network buffers left." + awaitFewer},
	{syscall.ENOMEM, "The machine that CodeForge runs on has no memory left for a connection." + awaitFewer},
	{syscall.EADDRNOTAVAIL, "The machine that CodeForge runs on has no free local port, or no address that reaches " +
		"the host." + awaitFewer},
}

// hasCause reports whether an error or one of its causes has a type.
func hasCause[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// StatusFor returns the HTTP status for a code.
func StatusFor(code string) int {
	switch code {
	case CodeTimeout:
		return http.StatusGatewayTimeout
	case CodeExhausted:
		return http.StatusServiceUnavailable
	default:
		return http.StatusBadGateway
	}
}

// ClassifyError returns the code for an error of a round trip.
func ClassifyError(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, dialguard.ErrRefused):
		return CodeAddress
	// A machine without free files also fails to resolve and to dial, so test this first.
	case (errors.Is(err, errResolve) || errors.Is(err, errDial)) && hintExhausted(err) != "":
		return CodeExhausted
	case errors.Is(err, errResolve):
		return CodeResolve
	case hasCause[*tls.CertificateVerificationError](err), hasCause[x509.UnknownAuthorityError](err),
		hasCause[x509.HostnameError](err), hasCause[x509.CertificateInvalidError](err), hasCause[tls.AlertError](err),
		hasCause[tls.RecordHeaderError](err):
		return CodeTLS
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return CodeTimeout
	case errors.Is(err, errDial):
		return CodeConnect
	}
	return CodeBroken
}
