// Package sigv4_test holds the signatures of internal/sigv4 against those of Amazon's own signer.
package sigv4_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/codeforge-mcp/codeforge/internal/sigv4"
)

const payload = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// pieces are what paths and queries are made of: everything that servers and signers disagree about.
var pieces = []string{
	"a", "Z9", "-", "_", ".", "~", "%20", "+", "%2B", "%25", "%2525", "%C3%BC", "%F0%9F%94%91", "(1)", "!", "'", "*", "=", ":", "@",
	"%26", "%3D", "%7E", "%2f", "$", ",",
}

func text(r *rand.Rand, most int) string {
	var b strings.Builder
	for range 1 + r.IntN(most) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// TestOracle: for what is sent, Amazon's signer computes the same signature.
func TestOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 11, 23, 3, 4, 5, 0, time.UTC)
	scopes := []sigv4.Scope{{Service: "s3", Region: "eu-central-1"}, {Service: "dynamodb", Region: "us-east-1"}, {Service: "execute-api", Region: "x"}}
	compared := 0
	for i := range 3000 {
		s := scopes[i%len(scopes)]
		address := "https://h.example:9000"
		for range 1 + r.IntN(3) {
			address += "/x" + text(r, 4) // never only dots: other services clean those away, and the oracle does not
		}
		separator := "?"
		for range r.IntN(4) {
			address += separator + text(r, 3)
			separator = "&"
		}
		req, err := http.NewRequest([]string{"GET", "PUT", "POST"}[r.IntN(3)], address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "text/plain;  charset=utf-8")
		req.Header["X-Amz-Meta-Note"] = []string{"  a  b ", "c"}
		req.Header.Set("X-Amz-Target", "T.Op")
		k := sigv4.Keys{ID: "AKIDEXAMPLE", Secret: fmt.Sprintf("secret-%d", i)}
		if i%2 == 0 {
			k.Token = "token+/="
		}
		sum := payload
		if s.Service == "s3" && i%5 == 0 {
			sum = sigv4.Unsigned
		}
		if err := sigv4.SignRequest(req, s, k, sum, now); err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		got := req.Header.Get("Authorization")
		oracle := req.Clone(context.Background())
		oracle.Header.Del("Authorization")
		oracle.URL = &url.URL{Scheme: "https", Host: req.URL.Host, Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery}
		err = v4.NewSigner().SignHTTP(context.Background(),
			aws.Credentials{AccessKeyID: k.ID, SecretAccessKey: k.Secret, SessionToken: k.Token},
			oracle, sum, s.Service, s.Region, now, func(o *v4.SignerOptions) { o.DisableURIPathEscaping = s.Service == "s3" })
		if err != nil {
			t.Fatal(err)
		}
		if want := oracle.Header.Get("Authorization"); got != want {
			t.Fatalf("%s %s, sent as %s?%s:\n%s\nwant\n%s", s.Service, address, req.URL.EscapedPath(), req.URL.RawQuery, got, want)
		}
		compared++
	}
	if compared != 3000 {
		t.Errorf("compared %d signatures", compared)
	}
}
