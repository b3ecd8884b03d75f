package tools

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// previewLength is the number of characters that a model gets of a far too long stdout.
const previewLength = 4000

// maxHints is the largest number of hints in a result.
const maxHints = 5

type runRendering struct {
	outcome        execution.Outcome
	err            error // why the run has no exit
	stdout, stderr *excerptBuffer
	limit          int
	changes        []skill.SkillChange
	// skills are the names of all skills. remarks are the remarks on skills that were written.
	skills, remarks []string
	// private means that the run shared no file with others.
	private bool
	// mistakes are the type mistakes because of which the code was not run, one line each.
	mistakes []string
	// plan describes the requests of a dry run. It is empty for another run.
	plan readertext.Text
	// files are shown images and sounds, and links to files.
	files    []mcp.Content
	catalog  proxyapi.Catalog
	code     string
	fenced   bool // the code was in a Markdown fence
	isRest   bool // stdout and stderr lack the output that the session has seen
	language sandboxapi.Language
	python   sandboxapi.Python // the sandbox's report about Python
}

// renderRun returns the result of a run. The first block of a success is stdout, exactly as printed. stderr follows in
// a second block after the line "stderr:". A failure has both in one block, stderr first. Notes come in the last block.
func renderRun(r runRendering) *mcp.CallToolResult {
	var notes []readertext.Text
	failed := r.err != nil || r.outcome.Exit.Reason != sandboxapi.Exited || r.outcome.Exit.Code != 0
	if r.err != nil {
		notes = append(notes, explainNoExit(r.err, r.outcome))
	} else if r.outcome.Exit.Reason == sandboxapi.Mistaken {
		notes = append(notes, readertext.NewText("%MISTAKES", "%MISTAKES", mistakesNote(r.mistakes)))
	} else if r.outcome.Exit.Detail != "" {
		notes = append(notes, readertext.NewText("%DETAIL", "%DETAIL", r.outcome.Exit.Detail))
	} else if failed && r.stdout.Len()+r.stderr.Len() > 0 && !r.isExplained() {
		notes = append(notes, readertext.NewText("{The run failed because the code ended with exit code %CODE, not 0.|}",
			"%CODE", strconv.Itoa(r.outcome.Exit.Code)))
	}
	if r.outcome.Lost {
		notes = append(notes, readertext.NewText("The proxy stopped before the run's receipt: "+
			"requests may have failed, and it is not known which were sent."))
	}
	if r.isRest {
		notes = append(notes, readertext.NewText("Run %RUN has ended.", "%RUN", r.outcome.Run))
	}
	shown, stderr, cut := r.cutOutput(failed)
	// A plan, changes or remarks already show that the run did something.
	if shown+stderr == "" && len(notes) == 0 && (failed || r.plan == readertext.Text{} &&
		len(r.changes)+len(r.remarks)+len(r.files) == 0) {
		notes = append(notes, readertext.NewText(explainSilence(r, failed)))
	}
	if cut > 0 {
		notes = append(notes, readertext.NewText("%NOTE", "%NOTE", cutNote(r, cut)))
	}
	if unkept := r.outcome.Exit.Unkept; unkept != "" {
		notes = append(notes, readertext.NewText("%UNKEPT", "%UNKEPT", unkept))
	}
	if n := r.outcome.Exit.InvalidUTF8; n > 0 {
		notes = append(notes, readertext.NewText("%N bytes of the output were not valid UTF-8 and are shown as U+FFFD. "+
			"Print binary data as base64.", "%N", strconv.FormatInt(n, 10)))
	}
	if r.plan != (readertext.Text{}) && r.err == nil {
		notes = append(notes, r.plan)
	}
	if r.fenced {
		notes = append(notes, readertext.NewText("The code inside the ``` fence was run. Send code without a fence."))
	}
	notes = append(notes, r.listHints()...)
	if note := changeNote(r.changes); note != "" {
		notes = append(notes, readertext.NewText("%NOTE", "%NOTE", note))
	}
	for _, note := range r.remarks {
		notes = append(notes, readertext.NewText("%NOTE", "%NOTE", note))
	}
	res := resultContents(shown, notes, failed)
	insertStderr(res, stderr)
	res.Content = append(res.Content, r.files...)
	if r.outcome.Receipt.Run != "" || r.outcome.Exit.Reason != "" {
		// A run whose receipt was lost still names its run, so that a program can find it in the history.
		r.outcome.Receipt.Run = cmp.Or(r.outcome.Receipt.Run, r.outcome.Run)
		res.Meta[receiptKey] = r.outcome.Receipt
		if r.outcome.Exit.Reason != "" {
			res.Meta[exitKey] = r.outcome.Exit
		}
	}
	return res
}

// insertStderr adds the block of stderr, if there is any, after stdout and before the notes.
func insertStderr(res *mcp.CallToolResult, stderr string) {
	if stderr != "" {
		res.Content = slices.Insert(res.Content, 1, mcp.Content(&mcp.TextContent{
			Text: stderrLine + stderr, Meta: mcp.Meta{streamKey: "stderr"},
		}))
	}
}

// mistakesNote returns the note on mistakes because of which the code was not run.
func mistakesNote(lines []string) string {
	return "Type errors, not run:\n" + strings.Join(lines, "\n") +
		"\nA line `// @ts-ignore` above one, or `// @ts-nocheck` as the first line, runs the code all the same."
}

// spokenText is the text for a person. Output replaces the first block if that block is a note. Notes are the notes.
type spokenText struct {
	Output string   `json:"output,omitempty"`
	Notes  []string `json:"notes"`
}

// resultContents returns the blocks for the model, and the notes for a person in _meta.
func resultContents(shown string, notes []readertext.Text, failed bool) *mcp.CallToolResult {
	var model, person []string
	for _, n := range notes {
		if n.Model != "" {
			model = append(model, n.Model)
		}
		if n.Person != "" {
			person = append(person, n.Person)
		}
	}
	blocks, told := []string{shown}, spokenText{Notes: person}
	// An empty first block would say nothing about the failure, so the first note takes its place.
	if failed && shown == "" && len(notes) > 0 && notes[0].Model != "" {
		blocks, model = model[:1:1], model[1:]
		told.Output = notes[0].Person
		told.Notes = slices.DeleteFunc(person, func(p string) bool { return p == told.Output })
	}
	if len(model) > 0 {
		blocks = append(blocks, strings.Join(model, "\n"))
	}
	res := textResult(blocks...)
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

// cutOutput returns the first block, stderr if it has a separate block, and the number of omitted characters. Both
// blocks have at most limit characters together. If the output is longer, stderr gets half of limit after a failure,
// and a quarter after a success. A stdout of more than twice limit gets previewLength if code can read the whole.
func (r runRendering) cutOutput(failed bool) (first, stderr string, cut int) {
	share := r.limit / 4
	if failed {
		share = r.limit / 2
	}
	// Unused space of one stream goes to the other.
	most := min(r.stderr.Len(), max(share, r.limit-r.stdout.Len()))
	stderr, cutErr := r.stderr.Text(most)
	room := r.limit - most
	if r.outcome.Exit.StdoutFile != "" && r.stdout.Len() > 2*r.limit {
		room = min(room, previewLength) // so much output was a mistake, and its text costs the model's context
	}
	first, cutOut := r.stdout.Text(room)
	if !failed {
		return first, stderr, cutErr + cutOut
	}
	if !r.language.IsPython() {
		stderr = shortenError(stderr, r.hasExplanation(stderr))
	}
	if stderr != "" && first != "" && !strings.HasSuffix(stderr, "\n") {
		stderr += "\n"
	}
	return stderr + first, "", cutErr + cutOut
}

// explainSilence explains why a run has no output.
func explainSilence(r runRendering, failed bool) string {
	if failed {
		return fmt.Sprintf("The code ended with exit code %d and no output.", r.outcome.Exit.Code)
	}
	return "The code ran without output. Print what you need with " + r.languageWord("console.log", "print") + "."
}

func (r runRendering) languageWord(typescript, python string) string {
	if r.language.IsPython() {
		return python
	}
	return typescript
}

// cutNote returns the number of omitted characters, and the place of the whole output.
func cutNote(r runRendering, cut int) string {
	n := fmt.Sprintf("Output was cut: %d of %d characters were left out.", cut, r.stdout.Len()+r.stderr.Len())
	if file := r.outcome.Exit.StdoutFile; file != "" {
		n += fmt.Sprintf(" The whole stdout is in %s: read parts of it with %s in a later run.", file,
			r.languageWord("Deno.readTextFile", "open()"))
	}
	return n + " Print less: filter, count, or select fields in code."
}

// changeNote names the skills that changed during the run.
func changeNote(changes []skill.SkillChange) string {
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
