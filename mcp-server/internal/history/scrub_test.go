package history

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const literal = "sk_live_0123456789abcdef"

// TestStoredTextsAreScrubbed: the file holds no credential of code, title, output, answer or skill, and its full-text
// index finds none. If the proxy does not answer, the run is stored without them.
// Promise: never-printed
func TestStoredTextsAreScrubbed(t *testing.T) {
	for name, scrub := range map[string]func(context.Context, []string) ([]string, error){
		"replaced": func(_ context.Context, texts []string) ([]string, error) {
			out := make([]string, len(texts))
			for i, text := range texts {
				out[i] = strings.ReplaceAll(text, literal, "STRIPE_TOKEN")
			}
			return out, nil
		},
		"no answer": func(context.Context, []string) ([]string, error) { return nil, errors.New("the proxy has gone") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, func(c *Config) { c.Scrub = scrub })
			r := s.BeginRecording(operatorapi.Run{ID: "rscrub"}, "// with "+literal+"\nfetch()")
			s.BeginRecording(operatorapi.Run{ID: "rcut"}, "// "+strings.Repeat("x", maxTitle-9)+literal) // the title ends within it
			r.RecordSlot(1, 1)
			settle(t, s)
			r.RecordOutput("the key is sk_live_01234", "") // in two pieces
			r.RecordOutput("56789abcdef\n", literal)
			r.RecordEnd(RunEnd{
				Exit: sandboxapi.Exit{Reason: sandboxapi.Exited, Detail: "at " + literal}, Answer: "answer " + literal,
				Receipt: proxyapi.Receipt{Run: "rscrub"},
			})
			s.RecordSkill(operatorapi.SkillVersion{Skill: "stripe", By: operatorapi.ByTool}, "const key = '"+literal+"'")
			if name == "replaced" {
				settle(t, s)
			}
			d, err := s.FindRun(t.Context(), "rscrub")
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for _, p := range d.Output.Head {
				text += p.Text
			}
			switch {
			case name == "no answer" && (d.Kept || d.Title != ""):
				t.Errorf("kept: %+v", d)
			case name == "replaced" && (d.Title != "with STRIPE_TOKEN" || !strings.Contains(d.Code.Head, "STRIPE_TOKEN") ||
				d.Answer.Head != "answer STRIPE_TOKEN" || d.Exit != "at STRIPE_TOKEN" || strings.Count(text, "STRIPE_TOKEN") != 2):
				t.Errorf("%+v %q", d, text)
			}
			page, err := s.ListRuns(t.Context(), operatorapi.RunFilter{Grep: literal}, "")
			if err != nil || len(page.Runs) > 0 {
				t.Errorf("found by the credential: %v %v", page.Runs, err)
			}
			shut(t, s)
			for _, suffix := range []string{"", "-wal"} {
				data, _ := os.ReadFile(filepath.Join(dir, database.Name+suffix))
				if strings.Contains(string(data), literal[:7]) {
					t.Errorf("%s has it", database.Name+suffix)
				}
			}
		})
	}
}

// TestScrubbedAcrossHalves: a credential that lies on the boundary of both halves of an output is found.
// Promise: never-printed
func TestScrubbedAcrossHalves(t *testing.T) {
	var printed outputCapture
	printed.addPiece(operatorapi.Print{Text: strings.Repeat("x", half-5) + literal})
	s := &Store{cfg: Config{Scrub: func(_ context.Context, texts []string) ([]string, error) {
		out := make([]string, len(texts))
		for i, text := range texts {
			out[i] = strings.ReplaceAll(text, literal, "STRIPE_TOKEN")
		}
		return out, nil
	}}}
	_, c, err := s.scrubByProxy(t.Context(), "", &runContent{Output: printed.collectedOutput()})
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, p := range append(c.Output.Head, c.Output.Tail...) {
		text += p.Text
	}
	if strings.Contains(text, literal) || !strings.HasSuffix(text, "xSTRIPE_TOKEN") {
		t.Errorf("stored: ...%s", text[max(0, len(text)-40):])
	}
}

// TestScrubbedAcrossCuts: of a credential that a cut of code, output or answer splits, nothing is stored. The literals
// everywhere else are replaced, and what is stored is as long as it may be.
// Promise: never-printed
func TestScrubbedAcrossCuts(t *testing.T) {
	replace := func(text string) string { return strings.ReplaceAll(text, literal, "S_T") }
	cfg := Config{Mode: Full, Scrub: func(_ context.Context, texts []string) ([]string, error) {
		out := make([]string, len(texts))
		for i, text := range texts {
			out[i] = replace(text)
		}
		return out, nil
	}}
	for name, size := range map[string]int{"long": 5 * half, "within the margins": 2*half + margin} {
		for offset := range len(literal) + 1 {
			for _, many := range []bool{false, true} { // credentials alone, which makes the text much shorter
				head := strings.Repeat("x", half-offset) + literal
				tail := literal + strings.Repeat("x", half-offset)
				if many {
					all := strings.Repeat(literal, 2*half/len(literal))
					head, tail = strings.Repeat("x", offset)+all, all+strings.Repeat("x", offset)
				}
				text := head + strings.Repeat("x", max(0, size-len(head)-len(tail))) + tail
				var printed outputCapture
				for rest := text; rest != ""; rest = rest[min(len(rest), 1000):] {
					printed.addPiece(operatorapi.Print{Text: rest[:min(len(rest), 1000)]})
				}
				s := &Store{cfg: cfg}
				_, c, err := s.scrubByProxy(t.Context(), "", &runContent{Output: printed.collectedOutput(), Code: cutMiddle(text), Answer: cutMiddle(text)})
				if err != nil {
					t.Fatal(err)
				}
				kept := c.cutMargins()
				if words := kept.joinTexts(); strings.Contains(words, literal[:6]) || strings.Contains(words, literal[6:]) {
					t.Fatalf("%s, %d: a part of a credential is stored", name, offset)
				}
				if !many && min(len(kept.Code.Head), sizeOf(kept.Output.Tail)) < half-len(literal) {
					t.Fatalf("%s, %d: %d and %d bytes are stored", name, offset, len(kept.Code.Head), sizeOf(kept.Output.Tail))
				}
			}
		}
	}
}

// TestLongestForm: a cut splits no credential in the longest form that the proxy finds.
// Promise: never-printed
func TestLongestForm(t *testing.T) {
	form := strings.Repeat("&#x0065;", (8<<10)*4/3) // 8 KiB in base64, in entities of HTML
	s := &Store{cfg: Config{Mode: Full, Scrub: func(_ context.Context, texts []string) ([]string, error) {
		out := make([]string, len(texts))
		for i, text := range texts {
			out[i] = strings.ReplaceAll(text, form, "S_T")
		}
		return out, nil
	}}}
	rest := strings.Repeat("x", 4*most)
	for text, least := range map[string]int{
		rest:                           half,
		rest[:half-1000] + form + rest: 0,
	} {
		_, c, err := s.scrubByProxy(t.Context(), "", &runContent{Code: cutMiddle(text)})
		if kept := c.cutMargins().Code.Head; err != nil || strings.Contains(kept, "#") || len(kept) < least {
			t.Errorf("%d bytes are stored, want %d without a part of the credential: %v", len(kept), least, err)
		}
	}
}

// TestFrozen: a run that an alarm has ended is neither ok nor failed, whatever its exit code is.
func TestFrozen(t *testing.T) {
	exit := sandboxapi.Exit{Reason: sandboxapi.Exited}
	for name, e := range map[string]RunEnd{
		"its own alarm":         {Exit: exit, Receipt: proxyapi.Receipt{Alarm: &proxyapi.Alarm{}}},
		"that of its session":   {Exit: exit, Frozen: true},
		"ended by it":           {Exit: sandboxapi.Exit{Reason: sandboxapi.Cancelled}, Frozen: true},
		"before it had started": {Reason: "alarm", Frozen: true},
	} {
		if got := endState(e); got != operatorapi.Frozen {
			t.Errorf("%s: %s", name, got)
		}
	}
}
