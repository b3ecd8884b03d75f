// Package sigv4 signs requests with AWS Signature Version 4.
//
// Contract: the signed form is the sent form. Sign rewrites path and query into the only form on which signer and
// server agree. Service, region, time and keys never come from the request. No later step may change the request.
//
// Threat: code that wants a signature for another request than the one it makes. A signature is valid only for the host
// to which the request goes. A server that echoes headers shows a signature to code. It is valid for some minutes, for
// the same request, which code could make anyway.
package sigv4

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// Keys sign requests. Token is empty for long-term keys.
type Keys struct{ ID, Secret, Token string }

// Scope limits a signature, besides its request.
type Scope struct{ Service, Region string }

const algorithm = "AWS4-HMAC-SHA256"

// Payload hashes for a body that is not signed.
const (
	Unsigned        = "UNSIGNED-PAYLOAD"
	UnsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// PayloadHeader is the header with the signed hash of the body.
const PayloadHeader = "X-Amz-Content-Sha256"

// Errors for requests that cannot be signed again.
var (
	// ErrChunks means that each chunk of the body has a signature.
	ErrChunks = errors.New("the body is signed chunk by chunk")
	// ErrPresigned means that the query has a signature.
	ErrPresigned = errors.New("the address is signed")
	// ErrAlgorithm means that the signature is of another kind.
	ErrAlgorithm = errors.New("another algorithm than " + algorithm)
	// ErrPath means that a path or query is ambiguous.
	ErrPath = errors.New("a path or query with a bad escape")
)

// FindKeyName returns the name in a request that replaces an access key's id, and whether the request has an AWS
// signature. The header is "AWS4-HMAC-SHA256 NAME", or an SDK's output with NAME as the id.
func FindKeyName(h http.Header) (name string, asks bool) {
	for _, v := range h["Authorization"] {
		word, rest, _ := strings.Cut(strings.TrimSpace(v), " ")
		if !strings.HasPrefix(strings.ToUpper(word), "AWS4-") {
			continue
		}
		rest = strings.TrimSpace(rest)
		for part := range strings.SplitSeq(rest, ",") {
			if id, ok := strings.CutPrefix(strings.TrimSpace(part), "Credential="); ok {
				rest, _, _ = strings.Cut(id, "/")
				break
			}
		}
		return rest, true
	}
	return "", false
}

// CheckSignable rejects requests that cannot be signed again.
func CheckSignable(req *http.Request) error {
	for name := range req.URL.Query() {
		if lower := strings.ToLower(name); lower == "x-amz-signature" || lower == "x-amz-credential" {
			return ErrPresigned
		}
	}
	for _, v := range req.Header["Authorization"] {
		word, _, _ := strings.Cut(strings.TrimSpace(v), " ")
		if strings.HasPrefix(strings.ToUpper(word), "AWS4-") && word != algorithm {
			return ErrAlgorithm
		}
	}
	if h := req.Header.Get(PayloadHeader); strings.HasPrefix(h, "STREAMING-") && h != UnsignedTrailer {
		return ErrChunks
	}
	return nil
}

// SignRequest signs a request, and removes every trace of an earlier signature. payload is the hash of the body in
// lower-case hexadecimal, or Unsigned or UnsignedTrailer.
func SignRequest(req *http.Request, s Scope, k Keys, payload string, now time.Time) error {
	if err := CheckSignable(req); err != nil {
		return err
	}
	if err := rewriteURL(req.URL, s.Service); err != nil {
		return err
	}
	stamp := now.UTC().Format("20060102T150405Z")
	// Values from code must not be signed.
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token", "Date", PayloadHeader} {
		req.Header.Del(name)
	}
	req.Header.Set("X-Amz-Date", stamp)
	if k.Token != "" {
		req.Header.Set("X-Amz-Security-Token", k.Token)
	}
	if s.Service == "s3" || payload == Unsigned || payload == UnsignedTrailer {
		req.Header.Set(PayloadHeader, payload)
	}
	names, headers := canonicalHeaders(req)
	canonical := strings.Join([]string{
		req.Method, canonicalPath(req.URL, s.Service), req.URL.RawQuery, headers, names, payload,
	}, "\n")
	scope := stamp[:8] + "/" + s.Region + "/" + s.Service + "/aws4_request"
	sum := sha256.Sum256([]byte(canonical))
	// The signing key is derived per day, region and service, as Signature Version 4 specifies.
	key := []byte("AWS4" + k.Secret)
	for _, part := range []string{stamp[:8], s.Region, s.Service, "aws4_request"} {
		key = computeMAC(key, part)
	}
	signature := computeMAC(key, algorithm+"\n"+stamp+"\n"+scope+"\n"+hex.EncodeToString(sum[:]))
	req.Header.Set("Authorization", algorithm+" Credential="+k.ID+"/"+scope+", SignedHeaders="+names+
		", Signature="+hex.EncodeToString(signature))
	return nil
}

func computeMAC(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text))
	return h.Sum(nil)
}

// rewriteURL gives path and query their signed form, so that the sent request is unambiguous.
func rewriteURL(u *url.URL, service string) error {
	if service == "s3" {
		decoded, err := url.PathUnescape(u.EscapedPath())
		if err != nil {
			return ErrPath
		}
		// S3 does not clean paths: "a//b" and "a/../b" are keys of objects.
		u.Path, u.RawPath = decoded, escapePath(decoded, true)
	}
	var pairs []string
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		n, err := url.QueryUnescape(name)
		v, err2 := url.QueryUnescape(value)
		// Some servers split parameters at a semicolon, too.
		if err != nil || err2 != nil || strings.Contains(part, ";") {
			return ErrPath
		}
		// A NUL sorts before every character, so "a=" comes before "a-b=".
		pairs = append(pairs, escapePath(n, false)+"\x00"+escapePath(v, false))
	}
	slices.Sort(pairs)
	for i, p := range pairs {
		pairs[i] = strings.Replace(p, "\x00", "=", 1)
	}
	u.RawQuery, u.ForceQuery = strings.Join(pairs, "&"), false
	return nil
}

// canonicalPath returns the signed form of the path. S3 signs the sent path. The other services clean it and encode it
// again.
func canonicalPath(u *url.URL, service string) string {
	sent := u.EscapedPath()
	sent = cmp.Or(sent, "/")
	if service == "s3" {
		return sent
	}
	clean := path.Clean(sent)
	if strings.HasSuffix(sent, "/") && clean != "/" {
		clean += "/"
	}
	return escapePath(clean, true)
}

// canonicalHeaders lists the signed headers: those that determine the request's effect and that no hop changes.
func canonicalHeaders(req *http.Request) (names, text string) {
	host := req.Host
	host = cmp.Or(host, req.URL.Host)
	values := map[string]string{"host": host}
	for name, list := range req.Header {
		lower := strings.ToLower(name)
		if !strings.HasPrefix(lower, "x-amz-") && lower != "content-type" && lower != "content-md5" {
			continue
		}
		trimmed := make([]string, len(list))
		for i, v := range list {
			// Signature Version 4 folds white space in header values.
			trimmed[i] = strings.Join(strings.Fields(v), " ")
		}
		values[lower] = strings.Join(trimmed, ",")
	}
	keys := slices.Sorted(maps.Keys(values))
	var b strings.Builder
	for _, name := range keys {
		b.WriteString(name + ":" + values[name] + "\n")
	}
	return strings.Join(keys, ";"), b.String()
}

// escapePath percent-encodes every byte that is not unreserved (RFC 3986), and slashes unless keep is set.
func escapePath(s string, keep bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == '~',
			c == '/' && keep:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}
