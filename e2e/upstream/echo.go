package upstream

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// secretOf finds the credential in a request, as a hostile upstream would. The parameter what says where to look.
func secretOf(r *http.Request) string {
	what := r.URL.Query().Get("what")
	kind, field, _ := strings.Cut(what, ":")
	switch kind {
	case "", "auth":
		_, v, ok := strings.Cut(r.Header.Get("Authorization"), " ")
		if !ok {
			return r.Header.Get("Authorization")
		}
		return v
	case "header":
		return r.Header.Get(field)
	case "cookie":
		c, err := r.Cookie(field)
		if err != nil {
			return ""
		}
		return c.Value
	case "user", "password":
		u, p, _ := r.BasicAuth()
		if kind == "user" {
			return u
		}
		return p
	case "query":
		return r.URL.Query().Get(field)
	case "body":
		b, _ := io.ReadAll(io.LimitReader(r.Body, maxSeenBody))
		return string(b)
	case "head":
		var b bytes.Buffer
		fmt.Fprintf(&b, "%s %s %s\nHost: %s\n", r.Method, r.RequestURI, r.Proto, r.Host)
		_ = r.Header.Write(&b)
		return b.String()
	case "text":
		return field
	case "known":
		known, _ := r.Context().Value(knownKey{}).(map[string]string)
		return known[field]
	}
	return ""
}

// formed is the credential in the form that the request asks for.
func formed(r *http.Request) string {
	secret, form := secretOf(r), r.URL.Query().Get("form")
	switch form {
	case "":
		form = "raw"
	case "reverse":
		b := []byte(secret)
		for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
			b[i], b[j] = b[j], b[i]
		}
		return string(b)
	case "decoded", "decoded-base64":
		// As servers decode the value of a cookie.
		text, err := url.PathUnescape(secret)
		if err != nil {
			return "error: " + err.Error()
		}
		if form == "decoded" {
			return text
		}
		return base64.StdEncoding.EncodeToString([]byte(text))
	case "basic-auth":
		return base64.StdEncoding.EncodeToString([]byte("user:" + secret))
	}
	out, err := canary.Encode(form, secret)
	if err != nil {
		return "error: " + err.Error()
	}
	return out
}

// echo sends the request's credential back. Parameters: what (where to read it), form (how to encode it), place (where
// in the response), enc (content coding), frame (how to cut the body), cs (character set, ":" and its label), pre and
// post (bytes around it), status, type.
func echo(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	text := formed(r)
	status := number(q, "status", http.StatusOK)
	h := w.Header()
	h.Set("Content-Type", cmpOr(q.Get("type"), "text/plain"))
	body := "ok"
	switch place := q.Get("place"); place {
	case "", "body":
		body = text
	case "location":
		h.Set("Location", "https://"+HTTPBin+"/anything?code="+url.QueryEscape(text))
	case "location-raw":
		h.Set("Location", "/anything?code="+text)
	case "cookie":
		h.Add("Set-Cookie", "session="+text+"; Path=/; HttpOnly")
	case "link":
		h.Set("Link", "<https://"+HTTPBin+"/next?token="+text+`>; rel="next"`)
	case "header":
		h.Set("X-Echo", text)
	case "headers-many":
		for i := range 20 {
			h.Add("X-Echo", strconv.Itoa(i)+" "+text)
		}
	case "header-name":
		h["X-"+text] = []string{"1"}
	case "type":
		h.Set("Content-Type", "text/plain; boundary="+text)
	case "challenge":
		h.Set("WWW-Authenticate", `Bearer realm="`+text+`"`)
	case "disposition":
		h.Set("Content-Disposition", `attachment; filename="`+text+`"`)
	case "refresh":
		h.Set("Refresh", "0; url=/?t="+text)
	case "digest":
		h.Set("ETag", `"`+text+`"`)
		h.Set("Digest", "sha-256="+text)
		h.Set("Content-MD5", text)
	case "trailer":
		h.Set("Trailer", "X-Echo-Trailer")
		defer w.Header().Set("X-Echo-Trailer", text)
		q.Set("frame", "chunked")
	case "trailer-undeclared":
		defer w.Header().Set(http.TrailerPrefix+"X-Echo-Trailer", text)
		q.Set("frame", "chunked")
	}
	body = strings.Repeat(cmpOr(q.Get("fill"), "."), number(q, "pre", 0)) + body + strings.Repeat(".", number(q, "post", 0))
	if cs := q.Get("cs"); cs != "" {
		var kind string
		if body, kind = inCharset(cs, body, r); kind != "" {
			h.Set("Content-Type", cmpOr(q.Get("type"), "text/plain")+kind)
		}
	}
	out, label, err := compress(q.Get("enc"), []byte(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if label != "" {
		h.Set("Content-Encoding", label)
	}
	send(w, status, q, out)
}

// send writes a body in the requested frame.
func send(w http.ResponseWriter, status int, q url.Values, body []byte) {
	rc := http.NewResponseController(w)
	cut := len(body)
	switch frame := q.Get("frame"); frame {
	case "", "length":
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		_, _ = w.Write(body)
		return
	case "chunked":
	case "chunk1":
		cut = 1
	case "chunk7":
		cut = 7
	case "sse":
		w.Header().Set("Content-Type", "text/event-stream")
		body = []byte("event: message\ndata: " + string(body) + "\n\n")
		cut = 11
	case "ndjson":
		w.Header().Set("Content-Type", "application/x-ndjson")
		body = []byte(`{"a":"` + string(body) + `"}` + "\n" + `{"b":"` + string(body) + `"}` + "\n")
		cut = 13
	default: // split:N cuts once at N
		cut = number(url.Values{"n": {strings.TrimPrefix(frame, "split:")}}, "n", 1)
		w.WriteHeader(status)
		_, _ = w.Write(body[:min(cut, len(body))])
		_ = rc.Flush()
		time.Sleep(20 * time.Millisecond)
		_, _ = w.Write(body[min(cut, len(body)):])
		return
	}
	w.WriteHeader(status)
	for len(body) > 0 {
		n := min(max(cut, 1), len(body))
		if _, err := w.Write(body[:n]); err != nil {
			return
		}
		_ = rc.Flush()
		body = body[n:]
	}
}

// hop redirects to the to parameter.
func hop(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Location", r.URL.Query().Get("to"))
	w.WriteHeader(number(r.URL.Query(), "status", http.StatusTemporaryRedirect))
}

// sink reads a whole body and responds with its length.
func sink(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	_, _ = fmt.Fprintf(w, "%d %v", n, err)
}

// ranges serves the credential as a document with support for Range, so that it could be read in slices.
func ranges(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	http.ServeContent(w, r, "secret.txt", time.Unix(1700000000, 0), strings.NewReader(formed(r)))
}

func number(q url.Values, name string, def int) int {
	n, err := strconv.Atoi(q.Get(name))
	if err != nil {
		return def
	}
	return n
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
