package console

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// charts are code that reads a CSV file of the host, shows a chart with a bar of 20 pixels for each line, and leaves a
// report.
var charts = map[string]string{
	"typescript": `const rows = Deno.readTextFileSync("/files/sales/months.csv").trim().split("\n").slice(1).map((l) => Number(l.split(",")[1]));
const width = 20 * rows.length, height = 64, lines = new Uint8Array((width + 1) * height);
for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) lines[y * (width + 1) + 1 + x] = height - y <= rows[Math.floor(x / 20)] ? 40 : 255;
const crc = (bytes: Uint8Array) => ~bytes.reduce((c, b) => { c ^= b; for (let i = 0; i < 8; i++) c = c & 1 ? c >>> 1 ^ 0xedb88320 : c >>> 1; return c; }, -1);
const chunk = (kind: string, data: Uint8Array) => {
  const out = new Uint8Array(12 + data.length), view = new DataView(out.buffer);
  view.setUint32(0, data.length), out.set(new TextEncoder().encode(kind), 4), out.set(data, 8), view.setUint32(8 + data.length, crc(out.subarray(4, 8 + data.length)));
  return out;
};
const head = new Uint8Array(13), view = new DataView(head.buffer);
view.setUint32(0, width), view.setUint32(4, height), head[8] = 8;
const packed = new Uint8Array(await new Response(new Blob([lines]).stream().pipeThrough(new CompressionStream("deflate"))).arrayBuffer());
const parts = [new Uint8Array([137, 80, 78, 71, 13, 10, 26, 10]), chunk("IHDR", head), chunk("IDAT", packed), chunk("IEND", new Uint8Array())];
show(new Uint8Array(await new Blob(parts).arrayBuffer()));
Deno.writeTextFileSync("/out/report.csv", "total\n" + rows.reduce((a, b) => a + b) + "\n");`,
	"python": `import csv, struct, zlib
rows = [int(r["total"]) for r in csv.DictReader(open("/files/sales/months.csv"))]
width, height = 20 * len(rows), 64
lines = b"".join(b"\0" + bytes(40 if height - y <= rows[x // 20] else 255 for x in range(width)) for y in range(height))
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
show(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))
open("/out/report.csv", "w").write(f"total\n{sum(rows)}\n")`,
}

// TestChart: code reads a CSV file of the host, and leaves a chart and a report. The model gets the chart as an image.
// The client, the command line and the console have both files.
func TestChart(t *testing.T) {
	if world.CurrentMode() != world.Embedded {
		t.Skip("embedded mode only: in Docker the command line saves files in its container")
	}
	w := world.Start(t, world.Config{Folders: []world.HostFolder{{Name: "sales", Files: map[string]string{"months.csv": "month,total\nJan,30\nFeb,50\nMar,10\n"}}}})
	b := newTab(t, nil)
	b.open(t, address(t, w))
	b.wait(t, "document.querySelector('nav.rail')")
	for language, code := range charts {
		t.Run(language, func(t *testing.T) {
			res, err := w.Session().CallTool(t.Context(), &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": code, "language": language}})
			testkit.Must(t, err)
			var image *mcp.ImageContent
			var link *mcp.ResourceLink
			for _, c := range res.Content {
				switch c := c.(type) {
				case *mcp.TextContent:
					if strings.Contains(c.Text, "Python is not available here") {
						testkit.SkipBecause(t, c.Text)
					}
				case *mcp.ImageContent:
					image = c
				case *mcp.ResourceLink:
					link = c
				}
			}
			if image == nil || image.MIMEType != "image/png" || link == nil || link.Name != "report.csv" {
				t.Fatalf("the model got %s", must(res.MarshalJSON()))
			}
			chart, err := png.Decode(bytes.NewReader(image.Data))
			testkit.Must(t, err)
			february, _, _, _ := chart.At(30, 20).RGBA()
			march, _, _, _ := chart.At(50, 20).RGBA()
			if size := chart.Bounds().Size(); size.X != 60 || size.Y != 64 || february>>8 != 40 || march>>8 != 255 {
				t.Errorf("%v pixels, February is %d, March is %d", size, february>>8, march>>8)
			}

			run := strings.Split(link.URI, "/")[3]
			for uri, want := range map[string]string{link.URI: "total\n90\n", strings.Replace(link.URI, "report.csv", "shown-1.png", 1): string(image.Data)} {
				got, err := w.Session().ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
				if err != nil || got.Contents[0].Text+string(got.Contents[0].Blob) != want {
					t.Errorf("the client reads %s: %+v %v", uri, got, err)
				}
			}

			dir := t.TempDir()
			out, err := w.Pipe(t.Context(), "", "runs", "files", run, "--out", dir)
			if err != nil || !strings.Contains(out, "text/csv") || !strings.Contains(out, "image/png") {
				t.Errorf("codeforge runs files: %v\n%s", err, out)
			}
			for name, want := range map[string]string{"report.csv": "total\n90\n", "shown-1.png": string(image.Data)} {
				if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
					t.Errorf("%s has %d bytes, want %d: %v", name, len(got), len(want), err)
				}
			}

			to(t, b, "#/runs/"+run)
			b.see(t, "#files", "report.csv")
			eval[bool](t, b, "[...document.querySelectorAll('#files li')].find((e) => e.innerText.includes('shown-1.png')).querySelector('button').click() ?? true")
			b.wait(t, fmt.Sprintf("document.querySelector('#files img')?.naturalWidth === %d", chart.Bounds().Dx()))
			b.clean(t)
		})
	}
}
