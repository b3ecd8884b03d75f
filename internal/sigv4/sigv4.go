// Package sigv4 signs requests with AWS Signature Version 4.
//
// Contract: what is signed is what is sent. Sign writes path and query anew, in the one form that signer and server
// agree on, and what it signs with (service, region, time, keys) never comes from the request. It is the last to change
// a request.
//
// Threat: code that wants a signature for something else than the request that it makes. None is of another host than
// the one that the request goes to. A server that echoes headers shows a signature to code; for some minutes it is good
// for that same request, which code could make anyway.
package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// Keys sign. Token is empty for those that last.
type Keys struct{ ID, Secret, Token string }

// Scope is what a signature is good for, besides its request.
type Scope struct{ Service, Region string }

const algorithm = "AWS4-HMAC-SHA256"

// The payload hashes that stand for a body that is not signed.
const (
	Unsigned        = "UNSIGNED-PAYLOAD"
	UnsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// PayloadHeader is the header that says what hash of the body is signed.
const PayloadHeader = "X-Amz-Content-Sha256"

// The requests that cannot be signed anew.
var (
	// ErrChunks is for a body each of whose chunks has a signature.
	ErrChunks = errors.New("the body is signed chunk by chunk")
	// ErrPresigned is for a signature in the query.
	ErrPresigned = errors.New("the address is signed")
	// ErrAlgorithm is for a signature of another kind.
	ErrAlgorithm = errors.New("another algorithm than " + algorithm)
	// ErrPath is for a path or query that cannot be read in one way only.
	ErrPath = errors.New("a path or query with a bad escape")
)

// Asks returns the name that stands in a request in place of an access key's id, and whether there is an AWS signature
// at all: "AWS4-HMAC-SHA256 NAME", or what an SDK writes that has the name for an id.
func Asks(h http.Header) (name string, asks bool) {
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

// Check refuses requests that cannot be signed anew.
func Check(req *http.Request) error {
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

// Sign signs a request, and replaces every trace of an earlier signature. payload is the hash of the body in small
// hexadecimal digits, or Unsigned or UnsignedTrailer.
func Sign(req *http.Request, s Scope, k Keys, payload string, now time.Time) error {
	if err := Check(req); err != nil {
		return err
	}
	if err := rewrite(req.URL, s.Service); err != nil {
		return err
	}
	stamp := now.UTC().Format("20060102T150405Z")
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
	key := []byte("AWS4" + k.Secret)
	for _, part := range []string{stamp[:8], s.Region, s.Service, "aws4_request"} {
		key = mac(key, part)
	}
	signature := mac(key, algorithm+"\n"+stamp+"\n"+scope+"\n"+hex.EncodeToString(sum[:]))
	req.Header.Set("Authorization", algorithm+" Credential="+k.ID+"/"+scope+", SignedHeaders="+names+
		", Signature="+hex.EncodeToString(signature))
	return nil
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text))
	return h.Sum(nil)
}

// rewrite gives path and query the form in which they are signed, so that what is sent can be read in no other way.
func rewrite(u *url.URL, service string) error {
	if service == "s3" {
		decoded, err := url.PathUnescape(u.EscapedPath())
		if err != nil {
			return ErrPath
		}
		u.Path, u.RawPath = decoded, escape(decoded, true)
	}
	var pairs []string
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		n, err := url.QueryUnescape(name)
		v, err2 := url.QueryUnescape(value)
		if err != nil || err2 != nil || strings.Contains(part, ";") {
			return ErrPath
		}
		// A NUL sorts before every character, so that "a=" comes before "a-b=".
		pairs = append(pairs, escape(n, false)+"\x00"+escape(v, false))
	}
	slices.Sort(pairs)
	for i, p := range pairs {
		pairs[i] = strings.Replace(p, "\x00", "=", 1)
	}
	u.RawQuery, u.ForceQuery = strings.Join(pairs, "&"), false
	return nil
}

// canonicalPath is the path as it is signed. S3 signs it as it is sent; the other services clean it, and encode it once
// more.
func canonicalPath(u *url.URL, service string) string {
	sent := u.EscapedPath()
	if sent == "" {
		sent = "/"
	}
	if service == "s3" {
		return sent
	}
	clean := path.Clean(sent)
	if strings.HasSuffix(sent, "/") && clean != "/" {
		clean += "/"
	}
	return escape(clean, true)
}

// canonicalHeaders lists the headers that are signed: those that decide what the request does, and that no hop changes.
func canonicalHeaders(req *http.Request) (names, text string) {
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	values := map[string]string{"host": host}
	for name, list := range req.Header {
		lower := strings.ToLower(name)
		if !strings.HasPrefix(lower, "x-amz-") && lower != "content-type" && lower != "content-md5" {
			continue
		}
		trimmed := make([]string, len(list))
		for i, v := range list {
			trimmed[i] = strings.Join(strings.Fields(v), " ")
		}
		values[lower] = strings.Join(trimmed, ",")
	}
	var keys []string
	for name := range values {
		keys = append(keys, name)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, name := range keys {
		b.WriteString(name + ":" + values[name] + "\n")
	}
	return strings.Join(keys, ";"), b.String()
}

// escape percent-encodes every byte that is not unreserved (RFC 3986), and slashes unless keep is set.
func escape(s string, keep bool) string {
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
