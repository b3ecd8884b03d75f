package egress_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
)

// signingAPI is a config.json of a host whose requests are signed in both ways.
const signingAPI = `{"description": "demo", "domains": ["` + demoHost + `"], "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"], "credentials": {
	"SIGN_AWS": {"aws": {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "inner-canary-9f8e7d6c5b4a", "region": "eu-central-1", "services": ["s3"]}},
	"SIGN_HEX": {"hmac": {"key": "inner-canary-1f8e7d6c5b4a", "message": "{method}{path}{body}", "headers": {"X-Hex": "v1={signature:hex}"}}},
	"SIGN_BASE64": {"hmac": {"key": "inner-canary-2f8e7d6c5b4a", "message": "{method}{path}", "headers": {"X-Base64": "{signature:base64}"}}}}}`

// TestSignatureEchoed: a signature comes back as the token name, in whatever form and framing: with one, somebody else
// could send the request again, with another body where the server does not check it.
// Promise: scrubbed-before-use
func TestSignatureEchoed(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": signingAPI}})
	var sent atomic.Value
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, signature, _ := strings.Cut(req.Header.Get("Authorization"), "Signature=")
		if v := req.Header.Get("X-Hex"); v != "" {
			signature = strings.TrimPrefix(v, "v1=")
		}
		if v := req.Header.Get("X-Base64"); v != "" {
			signature = v
		}
		sent.Store(signature)
		_, _ = io.Copy(io.Discard, req.Body)
		forms := []string{signature, strings.ToUpper(signature), hex.EncodeToString([]byte(signature)),
			base64.StdEncoding.EncodeToString([]byte(signature)), base64.RawURLEncoding.EncodeToString([]byte("Signature=" + signature)),
			strings.ReplaceAll(signature, signature[:1], fmt.Sprintf(`\u%04x`, signature[0])), strings.ReplaceAll(signature, "=", "%3D")}
		if raw, err := base64.StdEncoding.DecodeString(signature); req.Header.Get("X-Base64") != "" && err == nil {
			forms[1] = hex.EncodeToString(raw)
		} else if raw, err := hex.DecodeString(signature); err == nil {
			forms = append(forms, base64.StdEncoding.EncodeToString(raw))
		}
		w.Header().Set("X-Echo", strings.Join(forms, " "))
		w.Header().Set("Trailer", "X-After")
		status := http.StatusOK
		if req.URL.Path == "/refused" {
			status = http.StatusForbidden
		}
		w.WriteHeader(status)
		for _, f := range forms {
			for i := range f { // a byte at a time
				_, _ = io.WriteString(w, f[i:i+1])
				if i%16 == 0 {
					_ = http.NewResponseController(w).Flush()
				}
			}
			_, _ = io.WriteString(w, "\n")
		}
		w.Header().Set("X-After", signature)
	}))
	end := r.begin()
	for name, header := range map[string][2]string{
		"SIGN_AWS": {"Authorization", "AWS4-HMAC-SHA256 SIGN_AWS"}, "SIGN_HEX": {"X-Hex", "SIGN_HEX"}, "SIGN_BASE64": {"X-Base64", "SIGN_BASE64"},
	} {
		for _, h2 := range []bool{false, true} {
			for _, path := range []string{"/a", "/refused"} {
				req, err := http.NewRequest(http.MethodPut, "https://"+demoHost+path, strings.NewReader("body"))
				check(t, err)
				req.Header.Set(header[0], header[1])
				resp, err := r.client(h2).Do(req)
				check(t, err)
				raw, err := hex.DecodeString(sent.Load().(string))
				if err != nil {
					raw, _ = base64.StdEncoding.DecodeString(sent.Load().(string))
				}
				text := body(t, resp) + resp.Header.Get("X-Echo") + resp.Trailer.Get("X-After")
				signature := sent.Load().(string)
				for _, shown := range []string{signature, strings.ToUpper(signature), hex.EncodeToString([]byte(signature)),
					base64.StdEncoding.EncodeToString([]byte(signature))[:40], signature[1:32], hex.EncodeToString(raw),
					base64.StdEncoding.EncodeToString(raw)} {
					if len(signature) < 44 || strings.Contains(text, shown) {
						t.Errorf("%s %s, HTTP/2 %v: %q is shown: %s", name, path, h2, shown, text)
						break
					}
				}
				if !strings.Contains(text, name) {
					t.Errorf("%s: the name is not shown: %s", name, text)
				}
			}
		}
	}
	if rec := end(); len(rec.Exchanges) != 12 || rec.Exchanges[0].Sanitized < 6 {
		t.Errorf("%d exchanges, %+v", len(rec.Exchanges), rec.Exchanges[0])
	}
}

// TestSignedStream: what a signed request is answered with arrives as it comes.
func TestSignedStream(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": signingAPI}})
	next := make(chan string)
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for text := range next {
			fmt.Fprintf(w, "data: %s\n\n", text)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer r.begin()()
	req, err := http.NewRequest(http.MethodGet, "https://"+demoHost+"/events", http.NoBody)
	check(t, err)
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 SIGN_AWS")
	answered := make(chan *http.Response, 1)
	go func() {
		resp, err := r.client(false).Do(req)
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	next <- "1"
	resp := <-answered
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := 1; i <= 3; i++ {
		timer := time.AfterFunc(testkit.Patience, func() { _ = resp.Body.Close() })
		if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", i) || !lines.Scan() {
			t.Fatalf("event %d: %q, %v", i, lines.Text(), lines.Err())
		}
		timer.Stop()
		if i < 3 {
			next <- fmt.Sprint(i + 1)
		}
	}
	close(next)
}

// roleAPI is a config.json of an API whose requests are signed with the keys of a role, and serveRole what STS and the API
// say: host serves the API.
const (
	roleHost    = "abc123.execute-api.eu-central-1.amazonaws.com"
	roleSecret  = "hunter2/secret/access/key+0123456789abcd"
	roleSession = "hunter2-session-token-0123456789-abcdefghijklmnop"
	roleAPI     = `{"description": "a gateway", "domains": ["` + roleHost + `"], "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"],
	"credentials": {"GW_ROLE_KEY": {"aws": {"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "inner-canary-9f8e7d6c5b4a",
	"role_arn": "arn:aws:iam::123456789012:role/reader", "region": "eu-central-1"}}}}`
)

func serveRole(host http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasPrefix(req.Host, "sts.") {
			host(w, req)
			return
		}
		fmt.Fprintf(w, `<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIAHUNTER2EXAMPLE</AccessKeyId>
			<SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration>
			</Credentials></AssumeRoleResult></AssumeRoleResponse>`, roleSecret, roleSession, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	})
}

// TestSigningKeySwapped: a key that signs is sent nowhere: not where its name stands as a value, whether requests were
// signed with it before or not.
// Promise: scrubbed-before-use
func TestSigningKeySwapped(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"gw": roleAPI, "demo": signingAPI}})
	var got strings.Builder
	var mu sync.Mutex
	r.upstreams.https(serveRole(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		text, _ := io.ReadAll(req.Body)
		fmt.Fprintln(&got, req.URL, req.Header, string(text))
	}))
	end := r.begin()
	const form, js = "application/x-www-form-urlencoded", "application/json"
	for name, host := range map[string]string{"GW_ROLE_KEY": roleHost, "SIGN_AWS": demoHost, "SIGN_HEX": demoHost} {
		for range 2 {
			for _, row := range [][4]string{ // a header, its value, the query, the body
				{"Authorization", "Bearer " + name}, {"Authorization", name}, {"Authorization", "token " + name},
				{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":x"))},
				{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+name))},
				{"X-Api-Key", name}, {"X-Hex", "v1=" + name}, {"X-Base64", name}, {"Cookie", "a=" + name}, {"X-Amz-Security-Token", name},
				{"X", "x", "?key=" + name}, {"X", "x", "/" + name}, {"Content-Type", form, "", "a=" + name},
				{"Content-Type", js, "", `{"a":"` + name + `"}`}, {"Content-Type", "text/plain", "", name},
			} {
				req, err := http.NewRequest(http.MethodPost, "https://"+host+"/"+row[2], strings.NewReader(row[3]))
				check(t, err)
				req.Header.Set(row[0], row[1])
				resp, err := r.client(false).Do(req)
				check(t, err)
				_ = body(t, resp)
			}
			req, err := http.NewRequest(http.MethodGet, "https://"+host+"/", http.NoBody)
			check(t, err)
			req.Header.Set("Authorization", "AWS4-HMAC-SHA256 "+name)
			req.Header.Set("X-Hex", name)
			resp, err := r.client(false).Do(req)
			check(t, err)
			if text := body(t, resp); resp.StatusCode != 200 {
				t.Errorf("%s: an honest request gets %d %s", name, resp.StatusCode, text)
			}
		}
	}
	for _, key := range []string{roleSecret, "inner-canary"} {
		for _, text := range []string{key, base64.StdEncoding.EncodeToString([]byte(key))[:12]} {
			if strings.Contains(got.String(), text) {
				t.Errorf("%q was sent: %s", text, got.String())
			}
		}
	}
	for _, e := range end().Exchanges {
		for _, s := range e.Swapped {
			if s.In != "signature" {
				t.Errorf("%s was swapped in %s", s.Name, s.In)
			}
		}
	}
}

// TestRangeOfSigned: a signed request has no Range, by which code could read the session token, which is added last, or the
// signature in pieces from a server that shows it. Only S3 without a session token has one: its downloads go on.
// Promise: scrubbed-before-use
func TestRangeOfSigned(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"gw": roleAPI, "demo": signingAPI,
		"bucket": strings.ReplaceAll(strings.ReplaceAll(roleAPI, roleHost, "b.s3.eu-central-1.amazonaws.com"), "GW_ROLE_KEY", "S3_ROLE_KEY"),
		"fixed":  strings.NewReplacer(demoHost, "fixed.demo.test", "SIGN_", "FIXED_", `"s3"`, `"execute-api"`, "inner-canary-", "other-canary-").Replace(signingAPI)}})
	r.upstreams.https(serveRole(func(w http.ResponseWriter, req *http.Request) {
		if v := req.Header.Get("X-Ms-Range"); v != "" {
			req.Header.Set("Range", v)
		}
		http.ServeContent(w, req, "echo.txt", time.Time{}, strings.NewReader(req.Header.Get("X-Amz-Security-Token")+" "+req.Header.Get("Authorization")+req.Header.Get("X-Hex")))
	}))
	defer r.begin()()
	for host, row := range map[string]struct {
		header, value string
		status        int
	}{
		roleHost: {"Authorization", "AWS4-HMAC-SHA256 GW_ROLE_KEY", 200}, "b.s3.eu-central-1.amazonaws.com": {"Authorization", "AWS4-HMAC-SHA256 S3_ROLE_KEY", 200},
		"fixed.demo.test": {"Authorization", "AWS4-HMAC-SHA256 FIXED_AWS", 200}, demoHost: {"X-Hex", "SIGN_HEX", 200},
		demoHost + ":443": {"Authorization", "AWS4-HMAC-SHA256 SIGN_AWS", 206}, // an honest download
	} {
		for _, name := range []string{"Range", "X-Ms-Range"} {
			req, err := http.NewRequest(http.MethodGet, "https://"+host+"/echo", http.NoBody)
			check(t, err)
			req.Header.Set(row.header, row.value)
			req.Header.Set(name, "bytes=0-5")
			resp, err := r.client(false).Do(req)
			check(t, err)
			if text := body(t, resp); resp.StatusCode != row.status || strings.Contains(text, roleSession[:6]) {
				t.Errorf("%s %s: %d %s", host, name, resp.StatusCode, text)
			}
		}
	}
}

// BenchmarkSignature is what scrubbing a signature costs a small response.
func BenchmarkSignature(b *testing.B) {
	raw := make([]byte, 32)
	for b.Loop() {
		_, _ = rand.Read(raw)
		text := hex.EncodeToString(raw)
		s := scrub.New([]catalog.Credential{{Name: "A_B", Value: secret.New(text)}, {Name: "A_B", Value: secret.New(strings.ToUpper(text))},
			{Name: "A_B", Value: secret.New(base64.StdEncoding.EncodeToString(raw))}})
		if !s.Contains(text) {
			b.Fatal()
		}
	}
}

// TestSignatureInMessages: a server that writes the handshake's signature into messages, whole and in parts, or into the
// reason of its end, shows the token name.
// Promise: scrubbed-before-use
func TestSignatureInMessages(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": signingAPI}})
	signature := make(chan string, 1)
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		digits := strings.TrimPrefix(req.Header.Get("X-Hex"), "v1=")
		signature <- digits
		c, err := websocket.Accept(w, req, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for _, kind := range []websocket.MessageType{websocket.MessageText, websocket.MessageBinary} {
			parts, err := c.Writer(req.Context(), kind)
			if err != nil {
				return
			}
			for _, text := range []string{"signed ", digits[:20], digits[20:], " and ", base64.StdEncoding.EncodeToString([]byte(digits))} {
				_, _ = io.WriteString(parts, text)
			}
			_ = parts.Close()
		}
		_ = c.Close(websocket.StatusNormalClosure, "signed "+digits)
	}))
	end := r.begin()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	client := r.client(false)
	client.Timeout = 0
	c, _, err := websocket.Dial(ctx, "wss://"+demoHost+"/ws", &websocket.DialOptions{HTTPClient: client, HTTPHeader: http.Header{"X-Hex": {"SIGN_HEX"}}})
	check(t, err)
	defer c.CloseNow()
	digits := <-signature
	if len(digits) != 64 {
		t.Fatalf("signed with %q", digits)
	}
	for range 2 {
		_, data, err := c.Read(ctx)
		check(t, err)
		if text := string(data); strings.Contains(text, digits[:16]) || !strings.HasPrefix(text, "signed SIGN_HEX and ") || len(text) > 60 {
			t.Errorf("the client saw %q", text)
		}
	}
	_, _, err = c.Read(ctx)
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Reason != "signed SIGN_HEX" {
		t.Errorf("closed with %v", err)
	}
	if rec := end(); rec.Count.Sanitized < 4 {
		t.Errorf("the receipt says %+v", rec)
	}
}
