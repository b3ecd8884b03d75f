package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/containerd/errdefs"
)

// requestRefusal is the reason why a request is refused, for the caller.
type requestRefusal struct{ reason string }

// Error returns the reason.
func (r *requestRefusal) Error() string { return "refused: " + r.reason }

func newRefusal(format string, args ...any) error {
	return &requestRefusal{fmt.Sprintf(format, args...)}
}

// readBody reads a request's body. The body must have a Content-Length of at most maxBody bytes, and arrive in time.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if len(r.TransferEncoding) > 0 || r.ContentLength < 0 {
		return nil, newRefusal("the body must have a Content-Length")
	}
	if r.ContentLength > maxBody {
		return nil, newRefusal("the body is larger than %d bytes", maxBody)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, newRefusal("the body did not arrive")
	}
	return data, nil
}

// statusOf maps an error to the status that a caller of the engine's API expects.
func statusOf(err error) int {
	var r *requestRefusal
	switch {
	case errors.As(err, &r):
		return http.StatusForbidden
	case errdefs.IsNotFound(err):
		return http.StatusNotFound
	case errdefs.IsConflict(err):
		return http.StatusConflict
	case errdefs.IsUnavailable(err):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}

// messageOf returns the body of an error in the engine's form, so that its clients show the text.
func messageOf(err error) []byte {
	data, _ := json.Marshal(map[string]string{"message": "docker-shim: " + err.Error()})
	return data
}

// answerError sends err to the caller and returns it.
func answerError(w http.ResponseWriter, err error) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(statusOf(err))
	_, _ = w.Write(messageOf(err))
	return err
}

func answerJSON(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return answerError(w, err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(data)
	return err
}
