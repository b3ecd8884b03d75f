package bucket_test

import (
	"bufio"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bucket"
)

const id, key = "AKIDOFTHETEST", "the-secret-of-the-test"

// open opens a prefix of a new bucket of a real server.
func open(t *testing.T) (*bucket.Bucket, *testkit.ObjectStore) {
	t.Helper()
	s := testkit.NewObjectStore(t, id, key, "eu-central-1")
	s.Bucket("skills")
	return at(t, "s3://skills/team", s.Environment()), s
}

func at(t *testing.T, address string, env map[string]string) *bucket.Bucket {
	t.Helper()
	s := with(env, "SKILLS_BUCKET", address)
	b, err := bucket.Open(testkit.Settings(t, s).SkillsBucket, testkit.Settings(t, s))
	testkit.Must(t, err)
	return b
}

// with is an environment with changes: names and values.
func with(env map[string]string, changes ...string) map[string]string {
	env = maps.Clone(env)
	for i := 0; i < len(changes); i += 2 {
		env[changes[i]] = changes[i+1]
	}
	return env
}

func TestVersions(t *testing.T) {
	b, _ := open(t)
	ctx := t.Context()
	one, err := b.Put(ctx, "a.ts", []byte("one"), bucket.Absent)
	testkit.Must(t, err)
	if _, err := b.Put(ctx, "a.ts", []byte("other"), bucket.Absent); !errors.Is(err, bucket.ErrConflict) {
		t.Errorf("an object was overwritten as new: %v", err)
	}
	two, err := b.Put(ctx, "a.ts", []byte("two"), one)
	testkit.Must(t, err)
	if _, err := b.Put(ctx, "a.ts", []byte("other"), one); !errors.Is(err, bucket.ErrConflict) {
		t.Errorf("a version was overwritten as an older one: %v", err)
	}
	if err := b.Remove(ctx, "a.ts", one); !errors.Is(err, bucket.ErrConflict) {
		t.Errorf("a version was removed as an older one: %v", err)
	}
	data, version, err := b.Get(ctx, "a.ts", 3)
	if err != nil || string(data) != "two" || version != two {
		t.Errorf("%q %q %v", data, version, err)
	}
	if _, _, err := b.Get(ctx, "a.ts", 2); err == nil {
		t.Error("an object was read that is too large")
	}
	testkit.Must(t, b.Remove(ctx, "a.ts", two))
	if _, err := b.Put(ctx, "a.ts", []byte("other"), two); !errors.Is(err, bucket.ErrConflict) {
		t.Errorf("a version was replaced that is gone: %v", err)
	}
	if _, _, err := b.Get(ctx, "a.ts", 3); !errors.Is(err, bucket.ErrNotFound) {
		t.Error(err)
	}
	_, err = b.Put(ctx, "a.ts", []byte("any"), bucket.Any)
	testkit.Must(t, err)
	testkit.Must(t, b.Remove(ctx, "a.ts", bucket.Any))
}

// TestRemoval: a removal says which version it is of, and where the server does not mind, an older one is refused too.
func TestRemoval(t *testing.T) {
	_, s := open(t)
	var conditions []string
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: s.Address})
		r.Out.Host = r.In.Host
		if r.In.Method == http.MethodDelete {
			conditions = append(conditions, r.Out.Header.Get("If-Match"))
			r.Out.Header.Del("If-Match")
		}
	}})
	defer front.Close()
	env := s.Environment()
	env["BUCKET_ENDPOINT"] = front.URL
	b := at(t, "s3://skills", env)
	one, err := b.Put(t.Context(), "a.ts", []byte("one"), bucket.Absent)
	testkit.Must(t, err)
	two, err := b.Put(t.Context(), "a.ts", []byte("two"), one)
	testkit.Must(t, err)
	if err := b.Remove(t.Context(), "a.ts", one); !errors.Is(err, bucket.ErrConflict) {
		t.Error(err)
	}
	testkit.Must(t, b.Remove(t.Context(), "a.ts", two))
	if len(conditions) != 1 || conditions[0] != `"`+two+`"` {
		t.Errorf("%q, want %q", conditions, two)
	}
}

// closing is a server before another one that ends a connection which was used before: when the next request has begun to
// arrive, or when that was made and before its answer.
type closing struct {
	net.Listener
	back  string
	after bool
	ended atomic.Int32
}

func (c *closing) serve() {
	for {
		conn, err := c.Accept()
		if err != nil {
			return
		}
		go c.pass(conn)
	}
}

// pass passes requests on. The second PUT of a connection is its last.
func (c *closing) pass(conn net.Conn) {
	defer conn.Close()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	in := bufio.NewReader(conn)
	for puts := 0; ; {
		if _, err := in.Peek(1); err != nil {
			return
		}
		if puts == 1 && !c.after {
			c.ended.Add(1)
			_ = conn.(*net.TCPConn).SetLinger(0)
			return
		}
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		host, body := req.Host, req.Body
		req.Body = io.NopCloser(body)
		req.URL.Scheme, req.URL.Host, req.Host, req.RequestURI = "http", c.back, host, ""
		resp, err := client.Do(req)
		if err != nil {
			return
		}
		if req.Method == http.MethodPut {
			puts++
		}
		if puts == 2 {
			c.ended.Add(1)
			_ = resp.Body.Close()
			return
		}
		resp.Close = false               // the server itself keeps no connection
		_, _ = io.Copy(io.Discard, body) // the server may have answered before it had read all
		err = resp.Write(conn)
		_ = resp.Body.Close()
		if err != nil {
			return
		}
	}
}

// TestClosedConnection: a PUT on a connection that the server has closed, or closes before it answers, is made again, and
// is no conflict with itself. One of two writers of the same version still loses.
func TestClosedConnection(t *testing.T) {
	_, s := open(t)
	for _, after := range []bool{false, true} {
		for _, size := range []int{10, 200 << 10} {
			t.Run(fmt.Sprintf("%v/%d", after, size), func(t *testing.T) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				testkit.Must(t, err)
				front := &closing{Listener: l, back: s.Address, after: after}
				t.Cleanup(func() { _ = l.Close() })
				go front.serve()
				b := at(t, fmt.Sprintf("s3://skills/%v-%d", after, size), with(s.Environment(), "BUCKET_ENDPOINT", "http://"+l.Addr().String()))
				text := bytes.Repeat([]byte("x"), size)
				_, err = b.Put(t.Context(), "first.ts", []byte("1"), bucket.Absent)
				testkit.Must(t, err)
				version, err := b.Put(t.Context(), "a.ts", text, bucket.Absent)
				if err != nil || front.ended.Load() == 0 {
					t.Fatalf("%v, %d connections ended", err, front.ended.Load())
				}
				data, is, err := b.Get(t.Context(), "a.ts", int64(size))
				if err != nil || is != version || !bytes.Equal(data, text) {
					t.Errorf("%d bytes of version %s, want %s: %v", len(data), is, version, err)
				}
				if _, err := b.Put(t.Context(), "a.ts", []byte("other"), bucket.Absent); !errors.Is(err, bucket.ErrConflict) {
					t.Errorf("an object of somebody else was taken for one's own: %v", err)
				}
			})
		}
	}
}

// TestOneWins: of many that make an object at the same time, one succeeds.
func TestOneWins(t *testing.T) {
	b, _ := open(t)
	var mu sync.Mutex
	var group sync.WaitGroup
	won, lost := 0, 0
	for i := range 8 {
		group.Go(func() {
			_, err := b.Put(t.Context(), "a.ts", fmt.Appendf(nil, "by %d", i), bucket.Absent)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case errors.Is(err, bucket.ErrConflict):
				lost++
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if won != 1 || lost != 7 {
		t.Errorf("%d won, %d lost", won, lost)
	}
}

func TestList(t *testing.T) {
	b, _ := open(t)
	for _, name := range []string{"b.ts", "a.ts", "c.ts", "folder/x.ts"} {
		_, err := b.Put(t.Context(), name, []byte("12345"), bucket.Absent)
		testkit.Must(t, err)
	}
	_, err := b.Under("folder").Put(t.Context(), "y.ts", []byte("1"), bucket.Absent)
	testkit.Must(t, err)
	names := func(b *bucket.Bucket, most int) string {
		list, err := b.List(t.Context(), most)
		testkit.Must(t, err)
		var out []string
		for _, o := range list {
			out = append(out, o.Name)
			if o.Name == "a.ts" && (o.Size != 5 || o.Version == "") {
				t.Errorf("%+v", o)
			}
		}
		return strings.Join(out, " ")
	}
	if got := names(b, 100); got != "a.ts b.ts c.ts folder/" {
		t.Error(got)
	}
	if got := names(b, 2); got != "a.ts b.ts" {
		t.Error(got)
	}
	if got := names(b.Under("folder"), 100); got != "x.ts y.ts" {
		t.Error(got)
	}
	for want, part := range map[string][2]string{"b.ts c.ts folder/": {"", "a.ts"}, "c.ts": {"c", "a.ts"}, "": {"c", "c.ts"}} {
		list, err := b.ListPart(t.Context(), part[0], part[1], 100)
		testkit.Must(t, err)
		var got []string
		for _, o := range list {
			got = append(got, o.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %q", part, got, want)
		}
	}
}

// TestRefused: what keeps a bucket from being used is said with what to do about it, and without the key.
// Promise: shared-skills
func TestRefused(t *testing.T) {
	good, s := open(t)
	file := filepath.Join(t.TempDir(), "credentials")
	testkit.Must(t, os.WriteFile(file, []byte("[default]\naws_access_key_id = "+id+"\n"), 0o600))
	for _, c := range []struct {
		name, address string
		changes       []string
		want          string
	}{
		{"no bucket", "s3://others", nil, "there is no bucket others: make it"},
		{"another key", "s3://skills", []string{"BUCKET_CREDENTIALS_FILE", testkit.Credentials(t, "OTHER", key)}, "check the key"},
		{"another secret", "s3://skills", []string{"BUCKET_CREDENTIALS_FILE", testkit.Credentials(t, id, "other")}, "check the key"},
		{"no file", "s3://skills", []string{"BUCKET_CREDENTIALS_FILE", "/nowhere"}, "/nowhere"},
		{"half a file", "s3://skills", []string{"BUCKET_CREDENTIALS_FILE", file}, "aws_secret_access_key under [default]"},
		{"no authorities", "s3://skills", []string{"BUCKET_ENDPOINT", "https://x", "BUCKET_CA_FILE", file}, "has no certificate"},
	} {
		set := testkit.Settings(t, with(s.Environment(), append(c.changes, "SKILLS_BUCKET", c.address)...))
		b, err := bucket.Open(set.SkillsBucket, set)
		if err == nil {
			err = b.Check(t.Context(), true)
		}
		var away *bucket.UnreachableError
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), key) || errors.As(err, &away) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	testkit.Must(t, good.Check(t.Context(), true))
	if list, err := good.List(t.Context(), 10); err != nil || len(list) > 0 {
		t.Errorf("the check left %v %v", list, err)
	}
	s.Stop()
	var away *bucket.UnreachableError
	if err := good.Check(t.Context(), true); !errors.As(err, &away) {
		t.Errorf("%v", err)
	}
}

// TestForbidden: a key that may not do what is needed is found out at the start.
func TestForbidden(t *testing.T) {
	_, s := open(t)
	for _, c := range []struct {
		method       string
		read, change bool
	}{{http.MethodGet, false, false}, {http.MethodPut, true, false}, {http.MethodDelete, true, false}, {http.MethodPatch, true, true}} {
		proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: s.Address})
			r.Out.Host = r.In.Host
		}}
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == c.method {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			proxy.ServeHTTP(w, r)
		}))
		env := s.Environment()
		env["BUCKET_ENDPOINT"] = front.URL
		b := at(t, "s3://skills", env)
		for write, want := range map[bool]bool{false: c.read, true: c.change} {
			err := b.Check(t.Context(), write)
			if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "the server does not allow it: allow the access key s3:ListBucket") {
				t.Errorf("without %s, write %v: %v", c.method, write, err)
			}
		}
		front.Close()
	}
}

// TestConditionsIgnored: a server that overwrites whatever the conditions say is refused.
func TestConditionsIgnored(t *testing.T) {
	careless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `<ListBucketResult><Name>skills</Name></ListBucketResult>`)
		}
	}))
	defer careless.Close()
	env := map[string]string{"BUCKET_ENDPOINT": careless.URL, "BUCKET_REGION": "us-east-1", "BUCKET_CREDENTIALS_FILE": testkit.Credentials(t, id, key)}
	b := at(t, "s3://skills", env)
	testkit.Must(t, b.Check(t.Context(), false))
	if err := b.Check(t.Context(), true); err == nil || !strings.Contains(err.Error(), "ignores If-Match or If-None-Match") {
		t.Error(err)
	}
}

// TestPrivateAuthority: over TLS, with an authority of its own.
func TestPrivateAuthority(t *testing.T) {
	_, s := open(t)
	back := &url.URL{Scheme: "http", Host: s.Address}
	server := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(back)
		r.Out.Host = r.In.Host
	}, Transport: &http.Transport{DisableCompression: true}})
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	testkit.Must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	env := with(s.Environment(), "BUCKET_ENDPOINT", server.URL)
	if err := at(t, "s3://skills", env).Check(t.Context(), true); err == nil || !strings.Contains(err.Error(), "BUCKET_CA_FILE") {
		t.Errorf("without the authority: %v", err)
	}
	env["BUCKET_CA_FILE"] = ca
	testkit.Must(t, at(t, "s3://skills", env).Check(t.Context(), true))
}
