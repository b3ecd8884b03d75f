package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"

	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/dialguard"
)

// The codes of failures.
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
)

// Failure is what the sandbox is told about an upstream that failed. Its texts are constants: the cause may quote the
// upstream's bytes, and is for the operator.
func Failure(code, host string) controlapi.Refusal {
	r := controlapi.Refusal{Code: code, Host: host}
	switch code {
	case CodeResolve:
		r.Error, r.Hint = "The host name does not resolve.", "Check the host; the user can check the proxy's DNS."
	case CodeAddress:
		r.Error, r.Hint = "The host resolves to an address that is not reachable from here.",
			"Private and special addresses are closed. The user can open a private range for the API."
	case CodeConnect:
		r.Error, r.Hint = "The host does not accept the connection.", "Try again later."
	case CodeTLS:
		r.Error, r.Hint = "The host's certificate cannot be verified.",
			"Nothing was sent. The user can give the API a certificate authority of its own (ca_file)."
	case CodeTimeout:
		r.Error, r.Hint = "The host did not answer in time.", "Try again later, or with a smaller request."
	case CodeEncoding:
		r.Error = "The response's encoding cannot be read."
		r.Hint = "Request an identity, gzip, deflate, br or zstd response."
	case CodeCharset:
		r.Error, r.Hint = "The response is in a character set that cannot be read.", "Request a response in UTF-8."
	case CodeCompressed:
		r.Error = "The host compressed its response, although it was asked not to."
		r.Hint = "The length of a compressed response can reveal a credential that it contains. " +
			"If no response of the API contains one, the user can set \"compress\": true for the API."
	default:
		r.Code, r.Error, r.Hint = CodeBroken, "The host's response broke off or is not HTTP.", "Try again later."
	}
	return r
}

// Status is the HTTP status for a code.
func Status(code string) int {
	switch code {
	case CodeTimeout:
		return http.StatusGatewayTimeout
	default:
		return http.StatusBadGateway
	}
}

// Classify returns the code for an error of a round trip.
func Classify(err error) string {
	var timeout net.Error
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verify *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, dialguard.ErrRefused):
		return CodeAddress
	case errors.Is(err, errResolve):
		return CodeResolve
	case errors.As(err, &verify), errors.As(err, &unknown), errors.As(err, &name), errors.As(err, &invalid),
		errors.As(err, &alert), errors.As(err, &record):
		return CodeTLS
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return CodeTimeout
	case errors.Is(err, errDial):
		return CodeConnect
	}
	return CodeBroken
}
