package e2e

import (
	"fmt"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestParallelUploads: every upload gets its response, however many code begins at once. Deno gives the window of an
// HTTP/2 connection to bodies whose stream it has not opened yet: with a window that 64 streams can fill, 80 uploads of
// 1 MB stalled for the whole run.
func TestParallelUploads(t *testing.T) {
	world.RunInOneMode(t, "the interpreter and the proxy decide it")
	w := world.Start(t, world.Config{})
	for _, c := range []struct{ count, size int }{{80, 1_000_000}, {200, 100_000}, {400, 20_000}} {
		r := w.MustExecute(t, fmt.Sprintf(`
const sent = await Promise.all([...Array(%d)].map(async (_, n) => {
  const r = await fetch("https://httpbin.test/post?n=" + n, { method: "POST", body: "y".repeat(%d) });
  return await r.arrayBuffer(), r.status;
}));
console.log(sent.filter((status) => status === 200).length);`, c.count, c.size), "httpbin")
		if r.Out != fmt.Sprintf("%d\n", c.count) {
			t.Errorf("%d bodies of %d bytes: %s %s", c.count, c.size, r.Out, r.Notes)
		}
	}
}
