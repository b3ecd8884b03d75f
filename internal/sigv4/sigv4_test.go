package sigv4_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/sigv4"
)

// empty is the hash of no bytes.
const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

var (
	keys = sigv4.Keys{ID: "AKIAIOSFODNN7EXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	noon = time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
)

func request(t *testing.T, method, url string, headers ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return req
}

// TestDocumentedExamples holds signatures against those in Amazon's documentation of S3, "Examples: Signature
// Calculations". They sign what this package does, except for the header Range of the first, which it does not sign.
func TestDocumentedExamples(t *testing.T) {
	for _, e := range []struct{ url, signature string }{
		{"https://examplebucket.s3.amazonaws.com/?lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		req := request(t, "GET", e.url)
		if err := sigv4.SignRequest(req, sigv4.Scope{Service: "s3", Region: "us-east-1"}, keys, empty, noon); err != nil {
			t.Fatal(err)
		}
		want := "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, " +
			"SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=" + e.signature
		if got := req.Header.Get("Authorization"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", e.url, got, want)
		}
	}
}

// TestWhatIsSignedIsSent: path and query leave in the one form that was signed.
func TestWhatIsSignedIsSent(t *testing.T) {
	for _, e := range []struct{ service, url, path, query string }{
		{"s3", "https://h.example/a%20b/%C3%BC+(1)", "/a%20b/%C3%BC%2B%281%29", ""},
		{"s3", "https://h.example//a//b/../c/.", "//a//b/../c/.", ""},
		{"s3", "https://h.example/%2525/a%2Fb", "/%2525/a/b", ""},
		{"s3", "https://h.example/a?b=c d&b=%63&a&x=a%2Bb&=", "/a", "=&a=&b=c&b=c%20d&x=a%2Bb"},
		{"s3", "https://h.example/a?a-b=1&a=2", "/a", "a=2&a-b=1"},
		{"lambda", "https://h.example/a%3Ab/x y", "/a%3Ab/x%20y", ""},
	} {
		req := request(t, "GET", strings.ReplaceAll(e.url, " ", "%20"))
		if err := sigv4.SignRequest(req, sigv4.Scope{Service: e.service, Region: "x"}, keys, empty, noon); err != nil {
			t.Errorf("%s: %v", e.url, err)
		}
		if req.URL.EscapedPath() != e.path || req.URL.RawQuery != e.query {
			t.Errorf("%s: sent as %s?%s; want %s?%s", e.url, req.URL.EscapedPath(), req.URL.RawQuery, e.path, e.query)
		}
	}
}

// TestNothingOfTheRequestDecides: dates, tokens and signatures that code wrote are gone.
func TestNothingOfTheRequestDecides(t *testing.T) {
	claims := []string{
		"Authorization", "AWS4-HMAC-SHA256 Credential=AWS_KEY/19990101/us-gov-west-1/iam/aws4_request, SignedHeaders=host, Signature=00",
		"Authorization", "Basic eDp5", "X-Amz-Date", "19990101T000000Z", "Date", "Fri, 01 Jan 1999 00:00:00 GMT",
		"X-Amz-Security-Token", "mine", "X-Amz-Content-Sha256", empty, "x-amz-meta-a", " a   b ",
	}
	req := request(t, "PUT", "https://h.example/a", claims...)
	plain := request(t, "PUT", "https://h.example/a", "x-amz-meta-a", "a b")
	for _, r := range []*http.Request{req, plain} {
		if err := sigv4.SignRequest(r, sigv4.Scope{Service: "s3", Region: "x"}, keys, empty, noon); err != nil {
			t.Fatal(err)
		}
	}
	if got := req.Header["Authorization"]; len(got) != 1 || got[0] != plain.Header.Get("Authorization") {
		t.Errorf("%q; want %q", got, plain.Header["Authorization"])
	}
	if req.Header.Get("Date") != "" || req.Header.Get("X-Amz-Security-Token") != "" || req.Header.Get("X-Amz-Date") != "20130524T000000Z" {
		t.Errorf("%v", req.Header)
	}
}

func TestRefused(t *testing.T) {
	for name, e := range map[string]struct {
		req  *http.Request
		want error
	}{
		"chunks":          {request(t, "PUT", "https://h.example/", sigv4.PayloadHeader, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), sigv4.ErrChunks},
		"chunks, trailer": {request(t, "PUT", "https://h.example/", sigv4.PayloadHeader, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"), sigv4.ErrChunks},
		"chunks, ECDSA":   {request(t, "PUT", "https://h.example/", sigv4.PayloadHeader, "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"), sigv4.ErrChunks},
		"presigned":       {request(t, "GET", "https://h.example/?X-Amz-Signature=00"), sigv4.ErrPresigned},
		"presigned, case": {request(t, "GET", "https://h.example/?x-amz-credential=AWS_KEY"), sigv4.ErrPresigned},
		"presigned, %":    {request(t, "GET", "https://h.example/?X-Amz-%53ignature=00"), sigv4.ErrPresigned},
		"SigV4A":          {request(t, "GET", "https://h.example/", "Authorization", "AWS4-ECDSA-P256-SHA256 AWS_KEY"), sigv4.ErrAlgorithm},
		"a bad escape":    {request(t, "GET", "https://h.example/?a=%zz"), sigv4.ErrPath},
	} {
		err := sigv4.SignRequest(e.req, sigv4.Scope{Service: "s3", Region: "x"}, keys, empty, noon)
		if !errors.Is(err, e.want) || strings.Contains(e.req.Header.Get("Authorization"), "Signature=") {
			t.Errorf("%s: %v, signed: %q", name, err, e.req.Header.Get("Authorization"))
		}
	}
}

func TestAsks(t *testing.T) {
	for value, want := range map[string]string{
		"AWS4-HMAC-SHA256 AWS_KEY": "AWS_KEY",
		"AWS4-HMAC-SHA256 Credential=AWS_KEY/20130524/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00": "AWS_KEY",
		"AWS4-HMAC-SHA256 SignedHeaders=host,Credential=AWS_KEY/2013,Signature=00":                                 "AWS_KEY",
		"aws4-hmac-sha256  AWS_KEY": "AWS_KEY",
		"AWS4-HMAC-SHA256":          "",
	} {
		if got, asks := sigv4.FindKeyName(http.Header{"Authorization": {value}}); got != want || !asks {
			t.Errorf("%s: %q, %t", value, got, asks)
		}
	}
	for _, value := range []string{"Bearer AWS_KEY", "AWS AWS_KEY:sig", ""} {
		if _, asks := sigv4.FindKeyName(http.Header{"Authorization": {value}}); asks {
			t.Errorf("%s: asks for a signature", value)
		}
	}
}
