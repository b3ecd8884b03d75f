package attack

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// proxyLimit is the memory of the proxy's container in docker-compose.yml, in bytes.
const proxyLimit = 512 << 20

// besiegedFor is how long each attack on the proxy's memory takes. CODEFORGE_SIEGE sets it, for example to 200s.
func besiegedFor() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("CODEFORGE_SIEGE"))
	return cmp.Or(d, 5*time.Second)
}

// proxyMemory are attacks that fill the proxy's memory so that the kernel ends it. Their runs have 64 requests each,
// which make the proxy hold as much as it may, as long as they can. An honest run beside them gets its answers and
// receipts.
func proxyMemory() []Attack {
	// 64 requests, each with a body of so many KiB that does not end.
	endless := func(kib int, url, headers string) string {
		return fmt.Sprintf(`const piece = new Uint8Array(64 << 10).fill(97);
const body = () => { let n = 0; return new ReadableStream({ async pull(c) { if (n++ < %d) c.enqueue(piece); else await new Promise(() => {}); } }); };
for (let i = 0; i < 64; i++) fetch("%s?t=TRIAL", { method: "POST", headers: %s, body: body() }).then((r) => r.text(), () => 0);
`, kib/64, url, headers)
	}
	const signed = `{ Authorization: "AWS4-HMAC-SHA256 Credential=SIGNED_TABLE/20200101/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0" }`
	const form = `{ "Content-Type": "application/x-www-form-urlencoded" }`
	row := func(name string, runs int, code string) Attack {
		return Attack{
			Section: "F", Name: "memory of the proxy: " + name, Expected: "bounded, and an honest run is served", Alone: true, NoPod: "nothing reads the memory of a container there",
			Seconds: int(besiegedFor().Seconds()) + 60,
			Do:      func(ctx context.Context, w *world.World) (string, bool) { return besiege(ctx, w, runs, code) },
		}
	}
	return []Attack{
		row("64 signed bodies of 8 MiB in one run", 1, endless(8<<10, "https://s.wild.test/table", signed)),
		row("signed bodies of 8 MiB", width-1, endless(8<<10, "https://s.wild.test/table", signed)),
		row("forms of 1 MiB where methods are restricted", width-1, endless(1<<10, "https://shared.test/anything", form)),
		row("JSON of 256 KiB where there are rules", width-1, `const body = "[" + '{"a":1},'.repeat(32000) + "1]";
const post = () => fetch("https://d.wild.test/anything/refunds", { method: "POST", headers: { "Content-Type": "application/json" }, body });
for (let i = 0; i < 64; i++) (async () => { for (;;) await post().then((r) => r.text(), () => 0); })();
`),
		row("unread answers over HTTP/2", width-1, `for (let i = 0; i < 64; i++) fetch("https://h2.test/x/flood?t=TRIAL").catch(() => 0);
`),
		row("bodies in br", width-1, `for (let i = 0; i < 64; i++) fetch("https://httpbin.test/x/bomb?enc=br&mb=64&t=TRIAL").catch(() => 0);
`),
	}
}

// besiege mounts one attack in several runs at once, and has honest runs beside them.
func besiege(ctx context.Context, w *world.World, runs int, code string) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, besiegedFor()+patience)
	defer cancel()
	proxy, err := proxyProcess(ctx, w)
	if err != nil {
		return err.Error(), false
	}
	before := readResident(proxy)
	length := besiegedFor()
	end := time.Now().Add(length)
	var hostile sync.WaitGroup
	for range runs {
		hostile.Go(func() {
			text := prelude("") + strings.ReplaceAll(code, "TRIAL", mark()) + "await new Promise((d) => setTimeout(d, 5000));\n"
			for time.Now().Before(end) {
				_, _ = w.Do(ctx, w.Session(), world.Run{Code: text, Timeout: 8})
			}
		})
	}
	peak, gone := before, false
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for time.Now().Before(end) && !gone {
			now := readResident(proxy)
			peak, gone = max(peak, now), now == 0
			time.Sleep(gaugeEvery)
		}
	}()
	served, failed, last := 0, 0, ""
	for time.Now().Before(end) {
		if why := checkHonestRun(ctx, w); why != "" {
			failed++
			last = why
		} else {
			served++
		}
	}
	hostile.Wait()
	<-watched
	seen := fmt.Sprintf("%d to %d MiB in %s, %d honest runs served, %d not", before>>20, peak>>20, length, served, failed)
	if last != "" {
		seen += ": " + clip(last, 600)
	}
	if gone {
		seen = "the proxy ended; " + seen
	}
	return seen, !gone && peak < proxyLimit && served > 0 && failed == 0
}

// checkHonestRun returns why a run did not get its answers and its receipt. It is empty if the run got both.
func checkHonestRun(ctx context.Context, w *world.World) string {
	trial := mark()
	r, err := w.Do(ctx, w.Session(), world.Run{Timeout: 60, Code: `const auth = { headers: { Authorization: "Bearer HTTPBIN_TOKEN" } };
const r = await Promise.all([fetch("https://httpbin.test/x/ok?t=` + trial + `", auth), fetch("https://h2.test/x/ok?t=` + trial + `", auth),
  fetch("https://shared.test/anything?t=` + trial + `", { method: "POST", body: new URLSearchParams({ a: "x".repeat(300000) }) })]);
console.log(r.map((x) => x.status).join(" "));`})
	switch {
	case err != nil:
		return err.Error()
	case r.Out != "200 200 200\n":
		return r.Out
	case r.Receipt.Count.Exchanges != 3:
		return fmt.Sprintf("%d requests in the receipt", r.Receipt.Count.Exchanges)
	}
	return ""
}

// proxyProcess returns the number of the proxy's process.
func proxyProcess(ctx context.Context, w *world.World) (int, error) {
	if w.Mode == world.Docker {
		out, err := exec.CommandContext(ctx, "docker", "inspect", "--format", "{{.State.Pid}}", w.Stack.Container("proxy")).Output() //nolint:gosec // a constant name
		if err != nil {
			return 0, fmt.Errorf("looking for the proxy: %w", err)
		}
		return strconv.Atoi(strings.TrimSpace(string(out)))
	}
	programs, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, path := range programs {
		exe, _ := os.Readlink(path)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && filepath.Base(exe) == "egress-proxy" && isBelow(pid, w.Process.Cmd.Process.Pid) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no process of the proxy is below %d", w.Process.Cmd.Process.Pid)
}

// isBelow reports whether a process descends from another one.
func isBelow(pid, from int) bool {
	for pid > 1 && pid != from {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			return false
		}
		pid, _ = strconv.Atoi(fields[1])
	}
	return pid == from
}

// readResident returns the resident memory of a process in bytes, or 0 if there is no such process.
func readResident(pid int) int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return kilobytes(status, "VmRSS:")
}
