package tools

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// picture is an image of this size.
func picture(t testing.TB, format string, w, h int) string {
	t.Helper()
	var b bytes.Buffer
	m := image.NewPaletted(image.Rect(0, 0, w, h), color.Palette{color.Black})
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, m)
	case "png in RGB":
		err = png.Encode(&b, image.NewNRGBA(m.Rect))
	case "gif":
		err = gif.Encode(&b, m, nil)
	case "jpeg":
		err = jpeg.Encode(&b, m, nil)
	}
	testkit.Must(t, err)
	return b.String()
}

// webp is the head of a WebP image of this size.
func webp(kind string, w, h int) string {
	body := make([]byte, 10)
	switch kind {
	case "VP8 ":
		binary.LittleEndian.PutUint16(body[6:], uint16(w))
		binary.LittleEndian.PutUint16(body[8:], uint16(h))
	case "VP8L":
		body[0] = 0x2f
		binary.LittleEndian.PutUint32(body[1:], uint32(w-1)|uint32(h-1)<<14)
	case "VP8X":
		copy(body[4:], []byte{byte(w - 1), byte((w - 1) >> 8), byte((w - 1) >> 16), byte(h - 1), byte((h - 1) >> 8), byte((h - 1) >> 16)})
	}
	return "RIFF\x1a\x00\x00\x00WEBP" + kind + "\x0a\x00\x00\x00" + string(body)
}

// oversized are images with a side that is too long, or empty, by their sizes.
func oversized(t testing.TB) map[string]string {
	return map[string]string{
		"1569 x 2": picture(t, "png", 1569, 2), "2 x 1569": picture(t, "gif", 2, 1569), "1569 x 1": picture(t, "jpeg", 1569, 1),
		"16777216 x 1": webp("VP8X", 1<<24, 1), "1 x 16384": webp("VP8L", 1, 1<<14), "0 x 1": webp("VP8 ", 0, 1),
		"2000 x 2": gifOf(3, 2, frame(0, 0, 2000, 2)), "3 x 1570": gifOf(3, 2, frame(0, 0, 3, 2)+"!\xfe\x02,;\x00"+frame(0, 1568, 1, 2)),
		"1568 x 40000": gifOf(1568, 2, frame(0, 0, 1, 1)+frame(1, 0, 1, 40000)+";"+frame(9, 9, 9999, 9)),
	}
}

// gifOf is a GIF with a screen of this size, a table of two colours, and these parts.
func gifOf(w, h int, parts string) string {
	head := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16([]byte("GIF89a"), uint16(w)), uint16(h))
	return string(head) + "\x80\x00\x00" + "\x00\x00\x00\xff\xff\xff" + parts + ";"
}

// frame is a part of a GIF, with its own table of four colours and one block of data.
func frame(x, y, w, h int) string {
	out := []byte(",")
	for _, n := range []int{x, y, w, h} {
		out = binary.LittleEndian.AppendUint16(out, uint16(n))
	}
	return string(out) + "\x81" + strings.Repeat(",", 12) + "\x02\x03,,,\x00"
}

// TestShowFile: the header decides whether showFile shows the data. showFile refuses a large image and a false header.
// Promise: files-are-data
func TestShowFile(t *testing.T) {
	huge := []byte(picture(t, "png", 1, 1))
	binary.BigEndian.PutUint32(huge[16:], 1<<31-1) // the width; the checksum is then wrong
	// Go's decoder of configurations ends at the first size of these two.
	png, jpeg := picture(t, "png in RGB", 3, 2), picture(t, "jpeg", 3, 2)
	jpeg = jpeg[:2] + "\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00" + jpeg[2:]
	header := png[8:33]
	start := strings.Index(jpeg, "\xff\xc0")
	before, frame1, after := jpeg[:start], jpeg[start:start+19], jpeg[start+19:]
	comment := "\xff\xfe\x00\x06\xff\xc0\x00\x04"
	for name, row := range map[string]struct{ data, end, want string }{
		"png":                {picture(t, "png", 1568, 2), ".png", "*mcp.ImageContent image/png"},
		"jpeg":               {picture(t, "jpeg", 3, 1568), ".jpeg", "*mcp.ImageContent image/jpeg"},
		"gif":                {picture(t, "gif", 3, 2), ".gif", "*mcp.ImageContent image/gif"},
		"gif, two frames":    {gifOf(3, 2, frame(0, 0, 3, 2)+frame(1, 1, 1, 1)), ".gif", "*mcp.ImageContent image/gif"},
		"a short gif":        {gifOf(3, 2, "")[:12], "", "its header is not that of image/gif"},
		"gif, a loop":        {gifOf(3, 2, "!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"+frame(0, 0, 3, 2)), ".gif", "*mcp.ImageContent image/gif"},
		"an empty block":     {gifOf(3, 2, "!\xff\x00\x03!\x01\xff\x00"+frame(0, 0, 9000, 4000)), "", "its header is not that of image/gif"},
		"a loop of no size":  {gifOf(3, 2, "!\xff\x0bNETSCAPE2.0\x00\x03!\x01\xff\x00"+frame(0, 0, 9, 9)), "", "its header is not that of image/gif"},
		"between blocks":     {gifOf(3, 2, "\x00"+frame(0, 0, 3, 2)), "", "its header is not that of image/gif"},
		"a short frame":      {gifOf(3, 2, frame(0, 0, 3, 2)[:8]), "", "its header is not that of image/gif"},
		"webp, lossy":        {webp("VP8 ", 1568, 9), ".webp", "*mcp.ImageContent image/webp"},
		"webp, lossless":     {webp("VP8L", 9, 1568), ".webp", "*mcp.ImageContent image/webp"},
		"webp, extended":     {webp("VP8X", 1568, 1568), ".webp", "*mcp.ImageContent image/webp"},
		"wav":                {"RIFF\x00\x00\x00\x00WAVEfmt ", ".wav", "*mcp.AudioContent audio/wav"},
		"mp3":                {"ID3\x03\x00", ".mp3", "*mcp.AudioContent audio/mpeg"},
		"ogg":                {"OggS\x00\x02", ".ogg", "*mcp.AudioContent audio/ogg"},
		"a webp of no kind":  {webp("VP9 ", 1, 1), "", "its header is not that of image/webp"},
		"a short webp":       {webp("VP8X", 1, 1)[:29], "", "its header is not that of image/webp"},
		"a lying png":        {string(huge), "", "its header is not that of image/png"},
		"two headers":        {png[:33] + header + png[33:], "", "its header is not that of image/png"},
		"no pixels":          {png[:33], "", "its header is not that of image/png"},
		"metadata":           {before + comment + "\xff" + frame1 + comment + after, ".jpeg", "*mcp.ImageContent image/jpeg"},
		"two sizes":          {before + frame1 + comment + frame1 + after, "", "its header is not that of image/jpeg"},
		"two kinds of sizes": {before + frame1 + "\xff\xc2" + frame1[2:] + after, "", "its header is not that of image/jpeg"},
		"an odd segment":     {before + frame1 + "\xff\xcc" + comment[2:] + after, "", "its header is not that of image/jpeg"},
		"bytes between":      {before + frame1 + "\x00" + after, "", "its header is not that of image/jpeg"},
		"no scan":            {before + frame1, "", "its header is not that of image/jpeg"},
		"a short png":        {"\x89PNG\r\n\x1a\n", "", "its header is not that of image/png"},
		"svg":                {"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", "", "want PNG, JPEG"},
		"html":               {"<html><script>", "", "want PNG, JPEG"},
		"text":               {"hello", "", "want PNG, JPEG"},
		"nothing":            {"", "", "want PNG, JPEG"},
		"pdf":                {"%PDF-1.7", "", "want PNG, JPEG"},
		"bmp":                {"BM\x00\x00", "", "want PNG, JPEG"},
		"a video":            {"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00", "", "want PNG, JPEG"},
	} {
		content, end, err := showFile([]byte(row.data))
		got := fmt.Sprint(err)
		switch c := content.(type) {
		case *mcp.ImageContent:
			got = fmt.Sprintf("%T %s", c, c.MIMEType)
		case *mcp.AudioContent:
			got = fmt.Sprintf("%T %s", c, c.MIMEType)
		}
		if end != row.end || !strings.HasPrefix(got, row.want) {
			t.Errorf("%s: %s %q", name, got, end)
		}
	}
	for size, data := range oversized(t) {
		if _, _, err := showFile([]byte(data)); err == nil || !strings.HasPrefix(err.Error(), size+" pixels: a side may have at most 1568") {
			t.Errorf("%s: %v", size, err)
		}
	}
}

// kept is a history with one file of an operator's run, and one of a tenant's.
func kept(t *testing.T) *history.Store {
	t.Helper()
	h := history.OpenStore(history.Config{Dir: t.TempDir(), Mode: history.Full, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { h.Close(context.Background()) })
	for run, owner := range map[string]string{"r1": "", "r2": "mallory"} {
		r := h.BeginRecording(operatorapi.Run{ID: run, Tenant: owner}, "code")
		r.AddFile("a b.csv", []byte("x,y\n"))
		r.AddFile("c.bin", []byte("\xff\x00"))
	}
	// A new database on a busy machine can take longer than a reader waits for the writer.
	for _, run := range []string{"r1", "r2"} {
		testkit.WaitFor(t, func() bool { _, err := h.ReadRunFile(t.Context(), run, "c.bin", nil); return err == nil })
	}
	return h
}

// TestReadLongFile: reading a file takes memory for all copies of it. Long text is a blob, because JSON can make it six
// times as long.
// Promise: bounded-work
func TestReadLongFile(t *testing.T) {
	h := history.OpenStore(history.Config{Dir: t.TempDir(), Mode: history.Full, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { h.Close(context.Background()) })
	h.BeginRecording(operatorapi.Run{ID: "r1"}, "code").AddFile("a.txt", bytes.Repeat([]byte("\x01"), 2<<20))
	testkit.WaitFor(t, func() bool { _, err := h.ReadRunFile(t.Context(), "r1", "a.txt", nil); return err == nil })
	s := shelved(t)
	s.cfg.History = h
	budget := membudget.New(4 * AnswerCopies * 2 << 20)
	account := budget.OpenAccount("client")
	req := &mcp.ReadResourceRequest{Params: &mcp.ReadResourceParams{URI: runsURI + "r1/files/a.txt"}}
	res, err := s.answerFile(membudget.NewContext(t.Context(), account), req)
	if err != nil || len(res.Contents[0].Blob) != 2<<20 || budget.UsedBytes() != AnswerCopies*2<<20 {
		t.Errorf("%d bytes are taken: %v", budget.UsedBytes(), err)
	}
	other := membudget.NewContext(t.Context(), budget.OpenAccount("client"))
	// Long enough for the database to answer, also with the race detector on a busy machine.
	ctx, cancel := context.WithTimeout(other, 2*time.Second)
	defer cancel()
	if _, err := s.answerFile(ctx, req); err == nil || !strings.Contains(err.Error(), "read this one again later") {
		t.Errorf("a second file at once: %v", err)
	}
}

// TestSkillMemory: a prompt with a skill takes memory like the skill's resource, and is refused without it.
// Promise: bounded-work
func TestSkillMemory(t *testing.T) {
	s := shelved(t)
	_, err := s.cfg.Skills.WriteSkill("a", "// "+strings.Repeat("x", 200<<10))
	testkit.Must(t, err)
	budget := membudget.New(32 << 20)
	ctx := membudget.NewContext(t.Context(), budget.OpenAccount("client"))
	prompt := &mcp.GetPromptRequest{Params: &mcp.GetPromptParams{Name: "run_skill", Arguments: map[string]string{"name": "a"}}}
	if _, err := s.shelf.answerPrompt(ctx, prompt); err != nil || budget.UsedBytes() < AnswerCopies*200<<10 {
		t.Errorf("%d bytes are taken: %v", budget.UsedBytes(), err)
	}
	for range 20 {
		_, err = s.shelf.answerPrompt(ctx, prompt)
	}
	if !errors.Is(err, errManyFiles) {
		t.Errorf("many prompts at once: %v", err)
	}
}

// TestReadFile: a client reads the files of its tenant's runs and no others.
// Promise: tenant-sessions
func TestReadFile(t *testing.T) {
	h := kept(t)
	for _, owner := range []string{"", "mallory"} {
		s := shelved(t)
		s.cfg.History = h
		s.addFileResources()
		own, foreign := "r1", "r2"
		if owner != "" {
			own, foreign = foreign, own
			s.cfg.Tenant = &execution.TenantSources{Tenant: &tenant.Tenant{Tenant: tokenfile.Tenant{Name: owner}}}
		}
		cs, err := join(t, s, "c")
		testkit.Must(t, err)
		read := func(uri string) (*mcp.ResourceContents, error) {
			res, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
			if err != nil {
				return nil, err
			}
			return res.Contents[0], nil
		}
		c, err := read(runsURI + own + "/files/a%20b.csv")
		if err != nil || c.Text != "x,y\n" || c.MIMEType != "text/csv" {
			t.Errorf("%q: %+v %v", owner, c, err)
		}
		if c, err = read(runsURI + own + "/files/c.bin"); err != nil || string(c.Blob) != "\xff\x00" {
			t.Errorf("%q: %+v %v", owner, c, err)
		}
		for _, uri := range []string{
			runsURI + foreign + "/files/c.bin", runsURI + own + "/files/d", runsURI + own + "/files/..%2f" + foreign + "%2ffiles%2fc.bin",
			runsURI + "r/files/c.bin", runsURI + own + "/files/", runsURI + "%25/files/c.bin", runsURI + own + "/files/%zz",
		} {
			if c, err := read(uri); err == nil {
				t.Errorf("%q reads %s: %+v", owner, uri, c)
			}
		}
	}
}

// TestTakeFile: the answer links to files, or names them for an older client. It also names the files that were left
// out.
func TestTakeFile(t *testing.T) {
	s := shelved(t)
	s.cfg.History = kept(t)
	r := runFiles{surface: s, recording: s.cfg.History.BeginRecording(operatorapi.Run{ID: "r3"}, "code")}
	for _, f := range []sandboxapi.File{
		{Name: "shown-1", Shown: true, Data: []byte(picture(t, "png", 1, 1))}, {Name: "shown-2", Shown: true, Data: []byte("x")},
		{Name: "a b.csv", Data: []byte("x")}, {Name: "busy", Dropped: true},
	} {
		r.takeFile(t.Context(), f)
	}
	_, err := join(t, s, "c")
	testkit.Must(t, err)
	var session *mcp.ServerSession
	for session = range s.server.Sessions() {
	}
	content, notes := r.describeFiles(&mcp.CallToolRequest{Session: session}, "r3")
	link, _ := content[0].(*mcp.ResourceLink)
	if len(content) != 2 || link == nil || link.URI != "codeforge://runs/r3/files/a%20b.csv" || *link.Size != 1 ||
		strings.Join(notes, "") != "Not kept or shown: shown-2 (want PNG, JPEG, WebP, GIF, WAV, MP3 or Ogg), busy (CodeForge was busy with other files)." {
		t.Errorf("%+v %q", content, notes)
	}
	if f, err := s.cfg.History.ReadRunFile(t.Context(), "r3", "shown-1.png", nil); err != nil || f.Type != "image/png" {
		t.Errorf("the shown image: %v", err)
	}
	r.recording = nil
	r.takeFile(t.Context(), sandboxapi.File{Name: "late"})
	if last := r.leftOut[len(r.leftOut)-1]; !strings.Contains(last, "HISTORY") {
		t.Errorf("without a history: %s", last)
	}
}
