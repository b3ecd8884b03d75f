package bucket

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/minio/minio-go/v7"
)

// UnreachableError says that the server did not answer, or that it could not serve the request now.
type UnreachableError struct{ cause error }

func (e *UnreachableError) Error() string { return "the server does not answer: " + e.cause.Error() }

// Unwrap is the cause.
func (e *UnreachableError) Unwrap() error { return e.cause }

// broken reports whether a connection ended before the answer. Go's own client repeats only what changes nothing.
func broken(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) ||
		err != nil && strings.Contains(err.Error(), "Connection closed by foreign host") // minio's words for io.EOF
}

// explain says of an error what is to be done.
func (b *Bucket) explain(doing string, err error) error {
	answer := minio.ToErrorResponse(err)
	where := fmt.Sprintf("%s %s", doing, b)
	switch answer.Code {
	case minio.NoSuchKey:
		return ErrNotFound
	case minio.NoSuchBucket:
		return fmt.Errorf("%s: there is no bucket %s: make it, or correct its name", where, b.name)
	case "InvalidAccessKeyId", "XAdminUserNotFound", "SignatureDoesNotMatch", "ExpiredToken",
		"InvalidToken", "InvalidTokenId":
		return fmt.Errorf("%s: the server refuses the access key (%s): check the key, and its secret", where, answer.Code)
	case "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect":
		return fmt.Errorf("%s: the bucket is in another region (%s): set BUCKET_REGION", where, answer.Code)
	}
	var untrusted *tls.CertificateVerificationError
	switch s := answer.StatusCode; {
	case errors.As(err, &untrusted):
		return fmt.Errorf("%s: %w: set BUCKET_CA_FILE to a file with the server's authority", where, err)
	case s == http.StatusPreconditionFailed, s == http.StatusConflict:
		return ErrConflict
	case s == http.StatusNotFound && doing != "listing":
		return ErrNotFound
	case s == http.StatusForbidden, s == http.StatusUnauthorized:
		return fmt.Errorf("%s: the server does not allow it: allow the access key s3:ListBucket on the bucket, and "+
			"s3:GetObject, s3:PutObject and s3:DeleteObject on its objects", where)
	case errors.Is(err, errNoKey):
		return fmt.Errorf("%s: %w", where, err)
	case s == 0, s == http.StatusTooManyRequests, s >= http.StatusInternalServerError:
		return &UnreachableError{fmt.Errorf("%s: %w", where, err)}
	}
	return fmt.Errorf("%s: %w", where, err)
}
