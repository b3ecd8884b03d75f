package providers

import (
	"encoding/binary"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// grpcServer answers each message of Echo, and sends twenty messages of a few bytes for one of Ticks: the time in
// milliseconds. Below /x/duplex the upstream does not read a request to its end before it calls its handler.
func grpcServer(t *testing.T) http.Handler {
	send := func(w http.ResponseWriter, text string) {
		_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...))
		_ = http.NewResponseController(w).Flush()
	}
	receive := func(r io.Reader) (string, error) {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return "", err
		}
		text := make([]byte, binary.BigEndian.Uint32(head[1:]))
		_, err := io.ReadFull(r, text)
		return string(text), err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		defer w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		for {
			text, err := receive(req.Body)
			if err != nil {
				return
			}
			if strings.HasSuffix(req.URL.Path, "/Echo") {
				send(w, text)
				continue
			}
			for range 20 {
				send(w, strconv.FormatInt(time.Now().UnixMilli(), 10))
				time.Sleep(60 * time.Millisecond)
			}
			return
		}
	})
}

// grpcCode plays ping-pong, and then reads ticks. It prints the middle and the slowest of both in ms. Deno lets code connect to
// names only, so a resolver of the library's keeps the name.
const grpcCode = `
grpc.experimental.registerResolver("name", class {
  constructor(target, listener) { Object.assign(this, { target, listener }); }
  updateResolution() {
    if (this.once) return;
    this.once = true;
    const endpoints = [{ addresses: [{ host: this.target.path, port: 443 }] }];
    process.nextTick(() => this.listener(grpc.experimental.statusOrFromValue(endpoints), {}, null, ""));
  }
  destroy() {}
  static getDefaultAuthority(target) { return target.path; }
});
const plain = { requestSerialize: (s) => Buffer.from(s), requestDeserialize: String, responseSerialize: Buffer.from, responseDeserialize: String };
const Demo = grpc.makeGenericClientConstructor({
  echo: { path: "/x/duplex.Demo/Echo", requestStream: true, responseStream: true, ...plain },
  ticks: { path: "/x/duplex.Demo/Ticks", requestStream: false, responseStream: true, ...plain },
}, "Demo");
const client = new Demo("name:h2.test", grpc.credentials.createSsl());
const metadata = new grpc.Metadata();
metadata.set("authorization", "Bearer GRPC_TOKEN");
const echoes = [];
let n = 0, began;
await new Promise((done, failed) => {
  const call = client.echo(metadata, { deadline: Date.now() + DEADLINE });
  const ping = () => { began = performance.now(); call.write("ping " + n); };
  call.on("data", (text) => {
    if (n > 0) echoes.push(performance.now() - began); // the first one has the handshakes
    if (text !== "ping " + n) failed(new Error(text));
    ++n < 20 ? ping() : call.end();
  });
  call.on("error", failed).on("end", done);
  ping();
});
const late = [];
await new Promise((done, failed) => client.ticks("go", metadata).on("data", (text) => {
  late.push(Date.now() - Number(text));
}).on("error", failed).on("end", done));
const middle = (list) => list.sort((a, b) => a - b)[list.length >> 1]; // one may be slow on a busy machine
console.log(n, "answers", late.length, "ticks", middle(echoes) < 50 && middle(late) < 50 ? "in time" : "late");
console.log("middle:", middle(echoes).toFixed(1), middle(late), "slowest:", echoes.at(-1).toFixed(1), late.at(-1));
`

// TestGRPC: grpc-js, unmodified in the sandbox. With "framing": "message" most small messages arrive within 50 ms
// in both directions. Without it the first one waits, and the note names the setting.
func TestGRPC(t *testing.T) {
	embedded(t)
	dir := node(t, t.TempDir(), "grpc.mjs", "grpc")
	cmd := exec.CommandContext(t.Context(), "node", "grpc.mjs", filepath.Join(dir, "grpc.js"))
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	library, err := os.ReadFile(filepath.Join(dir, "grpc.js"))
	testkit.Must(t, err)
	key := canary.New("GRPC_TOKEN")
	for framing, c := range map[string]struct{ deadline, want, note string }{
		"message": {"20000", "20 answers 20 ticks in time\n", ""},
		"":        {"5000", "", `"framing": "message" in apis/calls/config.json`},
	} {
		t.Run("framing "+framing, func(t *testing.T) {
			config := map[string]any{
				"description": "calls", "domains": []string{"h2.test"}, "ca_file": "ca.pem",
				"allow_private": []string{upstream.Embedded.Private.String() + "/32"}, "credentials": map[string]any{"GRPC_TOKEN": key.Value()},
			}
			if framing != "" {
				config["framing"] = framing
			}
			w := world.Start(t, world.Config{APIs: []world.API{{Name: "calls", Config: config}},
				Hosts: map[string]http.Handler{"h2.test": grpcServer(t)}})
			code := strings.NewReplacer("DEADLINE", c.deadline).Replace(grpcCode)
			r, err := w.Do(t.Context(), w.Session(), world.Run{Code: string(library) + code, Timeout: 60})
			if err != nil || !strings.HasPrefix(r.Out, c.want) || !strings.Contains(r.Notes, c.note) {
				t.Errorf("%v\n%.2000s\n%.2000s", err, r.Out, r.Notes)
			}
			t.Log(r.Out)
		})
	}
}
