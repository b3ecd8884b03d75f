package ledger

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// answers is a proxy that answers each request like this.
type answers struct {
	status int
	body   io.Reader
	err    error
}

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Body: io.NopCloser(a.body)}, nil
}

// TestRemoteDays: a list of days that breaks off is an error, not a shorter ledger.
func TestRemoteDays(t *testing.T) {
	broken := errors.New("the connection was reset")
	half := io.MultiReader(strings.NewReader("2026-01-01\n"), iotest.ErrReader(broken))
	for name, c := range map[string]struct {
		answers answers
		days    []string
		want    error
	}{
		"whole":       {answers{http.StatusOK, strings.NewReader("2026-01-01\n2026-01-02\n"), nil}, []string{"2026-01-01", "2026-01-02"}, nil},
		"breaks off":  {answers{http.StatusOK, half, nil}, nil, broken},
		"no ledger":   {answers{http.StatusNotFound, strings.NewReader(""), nil}, nil, os.ErrNotExist},
		"no answer":   {answers{http.StatusOK, strings.NewReader(""), broken}, nil, broken},
		"not allowed": {answers{http.StatusForbidden, strings.NewReader("2026-01-01\n"), nil}, nil, nil},
	} {
		days, err := Remote{HTTP: &http.Client{Transport: c.answers}}.ListDays()
		if !slices.Equal(days, c.days) || c.want != nil && !errors.Is(err, c.want) || (err == nil) != (c.days != nil) {
			t.Errorf("%s: %q, %v", name, days, err)
		}
	}
}
