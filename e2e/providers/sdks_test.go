package providers

import (
	"crypto/md5" //nolint:gosec // S3's ETag is one
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// objects is a stand-in for S3: it keeps objects, gives each the digest of its content as its ETag, and heeds If-Match
// and If-None-Match. It does not verify signatures; TestS3 has a server that does.
type objects struct {
	mu   sync.Mutex
	kept map[string]string
	keys []string // the Credential of each request
}

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keys = append(o.keys, r.Header.Get("Authorization"))
	content, found := o.kept[r.URL.Path]
	sum := md5.Sum([]byte(content)) //nolint:gosec // as above
	etag := `"` + hex.EncodeToString(sum[:]) + `"`
	switch want := r.Header.Get("If-Match"); {
	case want != "" && (!found || want != etag):
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = io.WriteString(w, "<Error><Code>PreconditionFailed</Code><Message>x</Message></Error>")
		return
	case r.Header.Get("If-None-Match") == etag:
		w.Header().Set("Etag", etag)
		w.WriteHeader(http.StatusNotModified)
		return
	case r.Method == http.MethodPut:
		body, _ := io.ReadAll(r.Body)
		o.kept[r.URL.Path] = string(body)
		sum = md5.Sum(body) //nolint:gosec // as above
		w.Header().Set("Etag", `"`+hex.EncodeToString(sum[:])+`"`)
		return
	case !found:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Etag", etag)
	w.Header().Set("Content-Encoding", "aws-chunked") // as some servers keep it
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	_, _ = io.WriteString(w, content)
}

// TestSDKs: the clients of the reports, unmodified in the sandbox: AWS's SDK with HeadObject and If-Match, and Supabase's,
// which sends its key in two headers.
func TestSDKs(t *testing.T) {
	embedded(t)
	sdk := bundle(t)
	secret, key := canary.New("S3_KEY"), canary.New("SUPABASE_KEY")
	const bucket, rows, bare = "c.wild.test", "b.wild.test", "d.wild.test"
	api := func(name, host, token string, credential any) world.API {
		return world.API{Name: name, Config: map[string]any{
			"description": name, "domains": []string{host}, "ca_file": "ca.pem", "credentials": map[string]any{token: credential},
			"allow_private": []string{upstream.Embedded.Private.String() + "/32"}}}
	}
	store := &objects{kept: map[string]string{}}
	table := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("apikey") != key.Value() || r.Header.Get("Authorization") != "Bearer "+key.Value() {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"message":"No API key found in request"}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `[{"id":7}]`)
	})
	w := world.Start(t, world.Config{
		APIs: []world.API{
			api("files", bucket, "S3_KEY", map[string]any{"aws": map[string]any{"access_key_id": "AKIDOFTHETEST",
				"secret_access_key": secret.Value(), "region": "eu-central-1", "services": []string{"s3"}}}),
			api("rows", rows, "SUPABASE_KEY", map[string]any{"value": key.Value(), "in": []string{"header:Authorization", "header:apikey"}}),
			api("bare", bare, "BARE_KEY", key.Value()+"-2"),
		},
		Hosts: map[string]http.Handler{bucket: store, rows: table, bare: table},
	})
	run := func(name, code, out string) world.Result {
		t.Helper()
		r, err := w.Do(t.Context(), w.Session(), world.Run{Code: sdk + code, Timeout: 120})
		if err != nil || r.Out != out {
			t.Errorf("%s: %v\n%.3000s\n%.2000s", name, err, r.Out, r.Notes)
		}
		for _, c := range []*canary.Canary{secret, key} {
			if where := c.Find([]byte(r.JSON)); where != "" {
				t.Errorf("%s: the key is shown: %s", name, where)
			}
		}
		return r
	}
	r := run("HeadObject and If-Match", `
const s3 = new sdk.S3Client({ region: "us-east-1", endpoint: "https://`+bucket+`", forcePathStyle: true, maxAttempts: 1,
  credentials: { accessKeyId: "S3_KEY", secretAccessKey: "unused" } });
const at = { Bucket: "b", Key: "notes.txt" };
const put = await s3.send(new sdk.PutObjectCommand({ ...at, Body: "one" }));
const head = await s3.send(new sdk.HeadObjectCommand(at));
console.log(head.ETag === put.ETag, head.ETag.length, head.ContentLength);
const got = await s3.send(new sdk.GetObjectCommand({ ...at, IfMatch: head.ETag, Range: "bytes=0-2" }));
console.log(await got.Body.transformToString(), got.ETag === head.ETag);
await s3.send(new sdk.PutObjectCommand({ ...at, Body: "two", IfMatch: head.ETag }));
for (const late of [new sdk.PutObjectCommand({ ...at, Body: "three", IfMatch: head.ETag }),
  new sdk.HeadObjectCommand({ ...at, IfNoneMatch: (await s3.send(new sdk.HeadObjectCommand(at))).ETag })]) {
  try { await s3.send(late); console.log("accepted"); } catch (e) { console.log(e.$metadata.httpStatusCode); }
}`, "true 34 3\none true\n412\n304\n")
	if r.Notes != "" {
		t.Errorf("notes: %s", r.Notes)
	}
	for _, k := range store.keys {
		if !strings.Contains(k, "Credential=AKIDOFTHETEST/") {
			t.Errorf("signed as %s", k)
		}
	}
	const query = `const { data, error, status } = await sdk.createClient("https://%s", "%s").from("items").select();
console.log(JSON.stringify(data ?? error.message), status);`
	if r = run("two headers declared", fmt.Sprintf(query, rows, "SUPABASE_KEY"), "[{\"id\":7}] 200\n"); r.Notes != "" {
		t.Errorf("notes: %s", r.Notes)
	}
	r = run("no place declared", fmt.Sprintf(query, bare, "BARE_KEY"), "\"No API key found in request\" 401\n")
	for _, part := range []string{"answered 401. The credential of BARE_KEY was put in header:Authorization", "BARE_KEY was put in header:Authorization, and is unchanged where a header has it a second time", `["header:Authorization", "header:apikey"]`} {
		if !strings.Contains(r.Notes, part) {
			t.Errorf("the notes have no %q: %s", part, r.Notes)
		}
	}
}
