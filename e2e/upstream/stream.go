package upstream

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// bombs are bodies of up to 100 MB of zeros. An attack with many of them must cost the proxy more than this server.
var bombs = struct {
	sync.Mutex
	bodies map[string][]byte
}{bodies: map[string][]byte{}}

// bomb sends mb megabytes of zeros in the requested codings.
func bomb(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	codings, mb := cmpOr(q.Get("enc"), "gzip"), number(q, "mb", 100)
	w.Header().Set("Content-Encoding", codings)
	if mb > 100 {
		_ = encodeZeros(w, codings, mb)
		return
	}
	bombs.Lock()
	key := fmt.Sprint(codings, mb)
	if bombs.bodies[key] == nil {
		var body bytes.Buffer
		_ = encodeZeros(&body, codings, mb) // an unknown coding is an empty body
		bombs.bodies[key] = body.Bytes()
	}
	body := bombs.bodies[key]
	bombs.Unlock()
	_, _ = w.Write(body)
}

func encodeZeros(out io.Writer, codings string, mb int) error {
	for _, coding := range slices.Backward(strings.Split(codings, ",")) {
		e, err := encoder(strings.TrimSpace(coding), out)
		if err != nil {
			return err
		}
		defer e.Close() // the outermost first
		out = e
	}
	zeros := make([]byte, 1<<20)
	for range mb {
		if _, err := out.Write(zeros); err != nil {
			return err
		}
	}
	return nil
}

// flood sends as much as the client takes.
func flood(w http.ResponseWriter, _ *http.Request) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	for {
		if _, err := w.Write(text); err != nil {
			return
		}
	}
}

// oracle sends guess, waits, and sends the rest. guess=secret:N sends the first N bytes of the credential,
// guess=false:N as many other bytes. What a proxy lets through before the pause must be the same for both.
func oracle(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	kind, _, _ := strings.Cut(q.Get("guess"), ":")
	n := number(map[string][]string{"n": {strings.TrimPrefix(q.Get("guess"), kind+":")}}, "n", 4)
	secret := formed(r)
	n = min(n, len(secret))
	prefix := secret[:n]
	if kind == "false" {
		prefix = strings.Repeat("~", n)
	}
	w.Header().Set("Content-Type", "text/plain")
	pre := strings.Repeat(".", number(q, "pre", 0))
	_, _ = io.WriteString(w, pre+prefix)
	_ = http.NewResponseController(w).Flush()
	time.Sleep(time.Duration(number(q, "pause", 400)) * time.Millisecond)
	_, _ = io.WriteString(w, "\nend\n")
}

// ticks sends n events, one every ms milliseconds, each with its sending time and the credential.
func ticks(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	for i := range number(q, "n", 5) {
		_, err := fmt.Fprintf(w, "data: %d %d %s\n\n", i, time.Now().UnixMilli(), formed(r))
		if err != nil || rc.Flush() != nil {
			return
		}
		select {
		case <-time.After(time.Duration(number(q, "ms", 200)) * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
}

// slow waits ms milliseconds before its head, or (body=1) between head and body.
func slow(w http.ResponseWriter, r *http.Request) {
	wait := time.Duration(number(r.URL.Query(), "ms", 1000)) * time.Millisecond
	if r.URL.Query().Get("body") != "" {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
	}
	select {
	case <-time.After(wait):
	case <-r.Context().Done():
		return
	}
	_, _ = io.WriteString(w, "late")
}

// raw responds with bytes that no honest server sends, selected by mode. HTTP/1 only.
func raw(w http.ResponseWriter, r *http.Request) {
	hj, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "HTTP/1 only", http.StatusBadRequest)
		return
	}
	secret := formed(r)
	c, _, err := hj.Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	mode := r.URL.Query().Get("mode")
	if text, ok := rawAnswers(secret)[mode]; ok {
		_, _ = io.WriteString(c, text)
		return
	}
	switch mode {
	case "reset":
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"+secret)
		reset(c)
	case "stall":
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"+secret)
		<-r.Context().Done()
	case "mute":
		time.Sleep(15 * time.Second)
	case "endless-headers":
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		line := []byte("X-More: " + strings.Repeat(secret+" ", 20) + "\r\n")
		for range 200000 {
			if _, err := c.Write(line); err != nil {
				return
			}
		}
	case "endless-status":
		_, _ = io.WriteString(c, "HTTP/1.1 200 ")
		junk := bytes.Repeat([]byte("x"), 64<<10)
		for range 2000 {
			if _, err := c.Write(junk); err != nil {
				return
			}
		}
	case "endless-trailers":
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n")
		line := []byte("X-More: " + strings.Repeat("t", 1000) + "\r\n")
		for range 200000 {
			if _, err := c.Write(line); err != nil {
				return
			}
		}
	case "informational-flood":
		for range 100000 {
			if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: <"+secret+">\r\n\r\n"); err != nil {
				return
			}
		}
	}
}

// rawAnswers are the answers that are one text, by mode.
func rawAnswers(secret string) map[string]string {
	const ok = "HTTP/1.1 200 OK\r\n"
	n := func(d int) string { return fmt.Sprint(len(secret) + d) }
	return map[string]string{
		"status-text":     "HTTP/1.1 200 " + secret + "\r\nContent-Length: 2\r\n\r\nok",
		"status-text-500": "HTTP/1.1 500 " + secret + "\r\nContent-Length: 2\r\n\r\nok",
		"cl-long":         ok + "Content-Length: " + n(1000) + "\r\n\r\n" + secret,
		"cl-short":        ok + "Content-Length: 5\r\n\r\n" + secret,
		"cl-double":       ok + "Content-Length: 2\r\nContent-Length: " + n(0) + "\r\n\r\n" + secret,
		"cl-te":           ok + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(secret), secret),
		"cl-negative":     ok + "Content-Length: -5\r\n\r\n" + secret,
		"te-unknown":      ok + "Transfer-Encoding: x-hidden\r\n\r\n" + secret,
		"chunk-bad":       ok + "Transfer-Encoding: chunked\r\n\r\nzz" + secret + "\r\n" + secret + "\r\n0\r\n\r\n",
		"chunk-extension": ok + "Transfer-Encoding: chunked\r\n\r\n2;x=" + secret + "\r\nok\r\n0\r\n\r\n",
		"until-eof":       "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + secret,
		"http09":          secret + "\r\n",
		"bad-version":     "HTTP/9.9 200 " + secret + "\r\n\r\n",
		"bad-status":      "HTTP/1.1 9" + secret + " no\r\n\r\n",
		"bad-header":      ok + "this line " + secret + " has no colon\r\nContent-Length: 2\r\n\r\nok",
		"bad-header-name": ok + "X " + secret + ": 1\r\nContent-Length: 2\r\n\r\nok",
		"header-fold":     ok + "X-Echo: a\r\n " + secret + "\r\nContent-Length: 2\r\n\r\nok",
		"header-nul":      ok + "X-Echo: \x00" + secret + "\r\nContent-Length: 2\r\n\r\nok",
		"two-answers":     ok + "Content-Length: 2\r\n\r\nok" + ok + "X-Second: " + secret + "\r\nContent-Length: " + n(0) + "\r\n\r\n" + secret,
		"early-hints":     "HTTP/1.1 103 Early Hints\r\nLink: </" + secret + ">\r\nX-Echo: " + secret + "\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nok",
		"switch":          "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + secret,
		"switch-ws":       "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Echo: " + secret + "\r\n\r\n" + secret,
		"gzip-cut":        ok + "Content-Encoding: gzip\r\nContent-Length: 20\r\n\r\n" + cutGzip(secret),
		"gzip-junk":       ok + "Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzipThen(secret),
		"close":           "",
	}
}

// cutGzip is the start of a gzip stream.
func cutGzip(secret string) string {
	b, err := squeeze("gzip", []byte(secret))
	if err != nil {
		return ""
	}
	return string(b[:20])
}

// gzipThen is a whole gzip stream followed by the credential in plain text.
func gzipThen(secret string) string {
	b, err := squeeze("gzip", []byte("ok"))
	if err != nil {
		return ""
	}
	return string(b) + secret
}
