package providers

import (
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/compose"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// withS3 is the variable that make s3 sets.
const withS3 = "CODEFORGE_S3"

// versitygw is an S3 server that verifies every signature and stores objects as files.
const versitygw = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// gateway starts it, with a root account.
func gateway(t *testing.T, id, key string) http.Handler {
	t.Helper()
	port, err := compose.FreePort()
	testkit.Must(t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	program := filepath.Join(world.ProgramsDir(testkit.RootDir(t)), "versitygw")
	cmd := exec.Command(program, "--port", address, "--region", "eu-central-1", "--quiet", "posix", t.TempDir())
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + id, "ROOT_SECRET_KEY=" + key}
	cmd.Stderr, cmd.WaitDelay = os.Stderr, 5*time.Second
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	testkit.WaitFor(t, func() bool {
		resp, err := http.Get("http://" + address + "/")
		return err == nil && resp.Body.Close() == nil
	})
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", address, r.In.Host
		},
		Transport: &http.Transport{DisableCompression: true}, FlushInterval: -1,
	}
}

// bundle is the text of a program that defines sdk, the SDKs from npm in one file.
func bundle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "node", "sdks.mjs", filepath.Join(dir, "sdk.js"))
	cmd.Dir = node(t, dir, "sdks.mjs", "sdks")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sdk, err := os.ReadFile(filepath.Join(dir, "sdk.js"))
	testkit.Must(t, err)
	return string(sdk)
}

// names are awkward names of objects.
const names = `["plain.txt", "with space.txt", "a+b&c=d.txt", "ünïcode/日本語.txt", "percent%20.txt", "deep/er/a~b(c)!'*.txt", "semi;colon,comma@at:colon.txt", "😀"]`

// TestS3: AWS's own SDK for JavaScript, unmodified in the sandbox, at a server that verifies what is signed.
func TestS3(t *testing.T) {
	embedded(t)
	if os.Getenv(withS3) == "" {
		t.Skip("make s3 runs it: its server takes minutes to build")
	}
	sdk := bundle(t)
	key := canary.New("S3_KEY")
	const host = "c.wild.test"
	api := world.API{Name: "files", Config: map[string]any{
		"description": "files", "domains": []string{host}, "ca_file": "ca.pem",
		"allow_private": []string{upstream.Embedded.Private.String() + "/32"},
		"credentials": map[string]any{"S3_KEY": map[string]any{"aws": map[string]any{
			"access_key_id": "AKIDOFTHETEST", "secret_access_key": key.Value(), "region": "eu-central-1", "services": []string{"s3"}}}},
	}}
	w := world.Start(t, world.Config{APIs: []world.API{api}, Hosts: map[string]http.Handler{host: gateway(t, "AKIDOFTHETEST", key.Value())}})
	const client = `
const s3 = new sdk.S3Client({ region: "us-east-1", endpoint: "https://` + host + `", forcePathStyle: true, maxAttempts: 1,
  credentials: { accessKeyId: "S3_KEY", secretAccessKey: "unused" } });
const same = (got, want, what) => { if (JSON.stringify(got) !== JSON.stringify(want)) console.log("WRONG", what, got, want); };
`
	run := func(name, code string) {
		t.Helper()
		r, err := w.Do(t.Context(), w.Session(), world.Run{Code: sdk + client + "try {" + code + "} catch (e) { console.log('FAILED', e.name, e.message, e.$metadata?.httpStatusCode); }", Timeout: 120})
		if err != nil || r.Out != "done\n" {
			t.Errorf("%s: %v\n%.3000s\n%.2000s", name, err, r.Out, r.Notes)
		}
		if where := key.Find([]byte(r.JSON)); where != "" {
			t.Errorf("%s: the key is shown: %s", name, where)
		}
	}
	run("put, get, list, copy, delete", `
await s3.send(new sdk.CreateBucketCommand({ Bucket: "photos" }));
const names = `+names+`;
for (const Key of names) {
  await s3.send(new sdk.PutObjectCommand({ Bucket: "photos", Key, Body: "content of " + Key, Metadata: { "of": "a test", empty: "" } }));
  const got = await s3.send(new sdk.GetObjectCommand({ Bucket: "photos", Key }));
  same(await got.Body.transformToString(), "content of " + Key, Key);
  same(got.Metadata.of, "a test", "metadata");
}
const keys = async (more) => (await s3.send(new sdk.ListObjectsV2Command({ Bucket: "photos", ...more }))).Contents.map((o) => o.Key).sort();
same(await keys({}), [...names].sort(), "list");
same(await keys({ Prefix: "ünïcode/" }), ["ünïcode/日本語.txt"], "prefix");
same(await keys({ Prefix: "with space" }), ["with space.txt"], "prefix with a space");
same((await s3.send(new sdk.ListObjectsV2Command({ Bucket: "photos", MaxKeys: 3 }))).IsTruncated, true, "pages");
await s3.send(new sdk.CopyObjectCommand({ Bucket: "photos", Key: "copy of it", CopySource: "photos/" + encodeURIComponent("with space.txt") }));
const part = await s3.send(new sdk.GetObjectCommand({ Bucket: "photos", Key: "copy of it", Range: "bytes=0-6" }));
same(await part.Body.transformToString(), "content", "range");
await s3.send(new sdk.DeleteObjectCommand({ Bucket: "photos", Key: "copy of it" }));
same((await keys({})).includes("copy of it"), false, "deleted");
console.log("done");`)
	run("multipart", `
await s3.send(new sdk.CreateBucketCommand({ Bucket: "parts" }));
const Body = new Uint8Array(12 << 20).map((_, i) => i * 31 + (i >> 8));
await new sdk.Upload({ client: s3, params: { Bucket: "parts", Key: "a b/ü", Body }, partSize: 5 << 20, queueSize: 2 }).done();
const got = new Uint8Array(await (await s3.send(new sdk.GetObjectCommand({ Bucket: "parts", Key: "a b/ü" }))).Body.transformToByteArray());
same(got.length, Body.length, "length");
same(got.findIndex((b, i) => b !== Body[i]), -1, "content");
console.log("done");`)
	before := peak(t, w)
	run("100 MB", `
const body = new Uint8Array(100 << 20).fill(120); // S3 wants a length
await s3.send(new sdk.CreateBucketCommand({ Bucket: "large" }));
const put = await fetch("https://`+host+`/large/object", { method: "PUT", body, headers: { Authorization: "AWS4-HMAC-SHA256 S3_KEY" } });
same(put.status, 200, await put.text());
const got = await fetch("https://`+host+`/large/object", { headers: { Authorization: "AWS4-HMAC-SHA256 S3_KEY" } });
let size = 0;
for await (const chunk of got.body) size += chunk.length;
same(size, 100 << 20, "size");
console.log("done");`)
	if grown := peak(t, w) - before; grown > 48<<10 {
		t.Errorf("the proxy grew by %d KiB for 100 MB", grown)
	} else {
		t.Logf("the proxy grew by %d KiB for 100 MB in both directions", grown)
	}
	run("a wrong key", `
const other = new sdk.S3Client({ region: "us-east-1", endpoint: "https://`+host+`", forcePathStyle: true, maxAttempts: 1, credentials: { accessKeyId: "OTHER", secretAccessKey: "x" } });
try { await other.send(new sdk.ListObjectsV2Command({ Bucket: "photos" })); console.log("accepted"); } catch (e) { console.log(e.$metadata.httpStatusCode >= 400 ? "done" : e); }`)
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak is the most memory that the proxy had, in KiB.
func peak(t *testing.T, w *world.World) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(proxyOf(t, w)), "status"))
	testkit.Must(t, err)
	m := highWater.FindSubmatch(status)
	if m == nil {
		t.Fatalf("%s", status)
	}
	n, err := strconv.Atoi(string(m[1]))
	testkit.Must(t, err)
	return n
}
