package tools

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/voice"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// maxHints is how many hints a result shows.
const maxHints = 5

// rendering is the input of render.
type rendering struct {
	outcome        execution.Outcome
	err            error // the run has no exit
	stdout, stderr *excerptBuffer
	limit          int
	changes        []skill.Change
	// skills are the names of all skills, remarks are what to tell of those that were written.
	skills, remarks []string
	// private means that the run shared no file with others.
	private bool
	// mistakes are those for which the code was not run, a line each.
	mistakes []string
	// plan tells what a dry run would have sent. Empty: it was none.
	plan     voice.Text
	catalog  controlapi.Catalog
	code     string
	fenced   bool // the code was in a fence
	isPython bool
	python   runapi.Python // what the sandbox says of it
}

// render makes the result of a run. The first block of a success is stdout, exactly as printed. If there is stderr, a
// second block has it behind the line "stderr:". A failure has both in one block, stderr first. The last block has the
// notes, if there are any.
func render(r rendering) *mcp.CallToolResult {
	var notes []voice.Text
	failed := r.err != nil || r.outcome.Exit.Reason != runapi.Exited || r.outcome.Exit.Code != 0
	if r.err != nil {
		notes = append(notes, explain(r.err, r.outcome))
	} else if r.outcome.Exit.Reason == runapi.Mistaken {
		notes = append(notes, voice.Say("%MISTAKES", "%MISTAKES", mistaken(r.mistakes)))
	} else if r.outcome.Exit.Detail != "" {
		notes = append(notes, voice.Say("%DETAIL", "%DETAIL", r.outcome.Exit.Detail))
	} else if failed && r.stdout.Len()+r.stderr.Len() > 0 && !r.isExplained() {
		notes = append(notes, voice.Say("{The run failed because the code ended with exit code %CODE, not 0.|}",
			"%CODE", strconv.Itoa(r.outcome.Exit.Code)))
	}
	if r.outcome.Lost {
		notes = append(notes, voice.Say("The proxy stopped before the run's receipt: "+
			"requests may have failed, and it is not known which were sent."))
	}
	shown, stderr, cut := r.cutOutput(failed)
	if shown+stderr == "" && len(notes) == 0 && (failed || r.plan == voice.Text{} && len(r.changes)+len(r.remarks) == 0) {
		notes = append(notes, voice.Say(silent(r, failed)))
	}
	if cut > 0 {
		notes = append(notes, voice.Say("%NOTE", "%NOTE", cutNote(r, cut)))
	}
	if unkept := r.outcome.Exit.Unkept; unkept != "" {
		notes = append(notes, voice.Say("%UNKEPT", "%UNKEPT", unkept))
	}
	if n := r.outcome.Exit.InvalidUTF8; n > 0 {
		notes = append(notes, voice.Say("%N bytes of the output were not valid UTF-8 and are shown as U+FFFD. "+
			"Print binary data as base64.", "%N", strconv.FormatInt(n, 10)))
	}
	if r.plan != (voice.Text{}) && r.err == nil {
		notes = append(notes, r.plan)
	}
	if r.fenced {
		notes = append(notes, voice.Say("The code inside the ``` fence was run. Send code without a fence."))
	}
	notes = append(notes, r.hints()...)
	if note := changeNote(r.changes); note != "" {
		notes = append(notes, voice.Say("%NOTE", "%NOTE", note))
	}
	for _, note := range r.remarks {
		notes = append(notes, voice.Say("%NOTE", "%NOTE", note))
	}
	res := contents(shown, notes, failed)
	if stderr != "" {
		res.Content = slices.Insert(res.Content, 1, mcp.Content(&mcp.TextContent{
			Text: stderrLine + stderr, Meta: mcp.Meta{streamKey: "stderr"},
		}))
	}
	if r.outcome.Receipt.Run != "" || r.outcome.Exit.Reason != "" {
		if r.outcome.Receipt.Run == "" {
			r.outcome.Receipt.Run = r.outcome.Run
		}
		res.Meta[receiptKey] = r.outcome.Receipt
		if r.outcome.Exit.Reason != "" {
			res.Meta[exitKey] = r.outcome.Exit
		}
	}
	return res
}

// mistaken reports the mistakes because of which code was not run.
func mistaken(lines []string) string {
	return "Type errors, nothing was run:\n" + strings.Join(lines, "\n") +
		"\nA line `// @ts-ignore` above one, or `// @ts-nocheck` as the first line, runs the code all the same."
}

// said is what a person reads: Output in place of the first block if that is a note, and the notes.
type said struct {
	Output string   `json:"output,omitempty"`
	Notes  []string `json:"notes"`
}

// contents are the blocks for the model, and in _meta the notes as a person reads them.
func contents(shown string, notes []voice.Text, failed bool) *mcp.CallToolResult {
	var model, person []string
	for _, n := range notes {
		if n.Model != "" {
			model = append(model, n.Model)
		}
		if n.Person != "" {
			person = append(person, n.Person)
		}
	}
	blocks, told := []string{shown}, said{Notes: person}
	if failed && shown == "" && len(notes) > 0 && notes[0].Model != "" {
		blocks, model = model[:1:1], model[1:]
		told.Output = notes[0].Person
		told.Notes = slices.DeleteFunc(person, func(p string) bool { return p == told.Output })
	}
	if len(model) > 0 {
		blocks = append(blocks, strings.Join(model, "\n"))
	}
	res := text(blocks...)
	res.IsError, res.Meta = failed, mcp.Meta{}
	if len(notes) > 0 {
		res.Meta[notesKey] = told
	}
	return res
}

// stderrLine marks the block of stderr for the model. streamKey in the block's _meta marks it for programs.
const (
	stderrLine = "stderr:\n"
	streamKey  = "codeforge/stream"
)

// cutOutput returns the first block, stderr if it has a separate block, and the number of characters that it cut. The
// blocks have at most limit characters together. If stdout and stderr are longer, stderr gets half of limit after a
// failure, and a quarter after a success.
func (r rendering) cutOutput(failed bool) (first, stderr string, cut int) {
	share := r.limit / 4
	if failed {
		share = r.limit / 2
	}
	most := min(r.stderr.Len(), max(share, r.limit-r.stdout.Len()))
	stderr, cutErr := r.stderr.Text(most)
	first, cutOut := r.stdout.Text(r.limit - most)
	if !failed {
		return first, stderr, cutErr + cutOut
	}
	if !r.isPython {
		stderr = shortenError(stderr, r.explained(stderr))
	}
	if stderr != "" && first != "" && !strings.HasSuffix(stderr, "\n") {
		stderr += "\n"
	}
	return stderr + first, "", cutErr + cutOut
}

// silent explains why there is nothing to show.
func silent(r rendering, failed bool) string {
	if failed {
		return fmt.Sprintf("The code ended with exit code %d and printed nothing.", r.outcome.Exit.Code)
	}
	if name := findUncalled(r.code); name != "" {
		return fmt.Sprintf("The code ran and printed nothing: it defines %s and never calls it.", name)
	}
	return "The code ran and printed nothing. Print what you need with " + r.word("console.log", "print") + "."
}

// word is one of two words, after the language of the code.
func (r rendering) word(typescript, python string) string {
	if r.isPython {
		return python
	}
	return typescript
}

// cutNote says how much was left out, and where the whole output is.
func cutNote(r rendering, cut int) string {
	n := fmt.Sprintf("Output was cut: %d of %d characters were left out.", cut, r.stdout.Len()+r.stderr.Len())
	if file := r.outcome.Exit.StdoutFile; file != "" {
		n += fmt.Sprintf(" The whole stdout is in %s: read parts of it with %s in a later run.", file,
			r.word("Deno.readTextFile", "open()"))
	}
	return n + " Print less: filter, count, or select fields in code."
}

// changeNote names the skills that changed during the run.
func changeNote(changes []skill.Change) string {
	if len(changes) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("Skills changed during this run: ")
	for i, c := range changes {
		if i == 20 {
			fmt.Fprintf(&b, " and %d more", len(changes)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s)", c.Name, c.What)
	}
	return b.String() + "."
}
