// Package patch applies SEARCH/REPLACE blocks to a text, all or none.
//
//	<<<<<<< SEARCH
//	text as it is, whole lines
//	=======
//	the new text
//	>>>>>>> REPLACE
//
// Blocks are applied in order, each to the result of the previous ones. A block's SEARCH text must occur exactly once,
// because otherwise its place is ambiguous.
//
// Threat: both texts are untrusted. Contract: the work is linear in the patch, and for each of at most MaxBlocks blocks
// about linear in the text, even if they are repetitive. It ends when ctx ends.
package patch

import (
	"context"
	"fmt"
	"strings"
)

// MaxBlocks bounds the blocks of one patch, because the whole text is searched for each.
const MaxBlocks = 100

const (
	searchMark  = "<<<<<<< SEARCH"
	middleMark  = "======="
	replaceMark = ">>>>>>> REPLACE"
)

// Example is a patch that shows the form.
const Example = searchMark + "\nconst limit = 10;\n" + middleMark + "\nconst limit = 100;\n" + replaceMark

// Block is one replacement. Both texts end in a line feed unless they are empty.
type Block struct{ Search, Replace string }

// Error is the reason why a patch was refused, for the model that wrote the patch.
type Error struct {
	// Block counts from 1; zero means the patch as a whole.
	Block int
	// Problem is one sentence.
	Problem string
	// Nearest is the part of the text that is most similar to SEARCH, or "".
	Nearest string
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Block > 0 {
		fmt.Fprintf(&b, "block %d: ", e.Block)
	}
	b.WriteString(e.Problem)
	if e.Nearest != "" {
		b.WriteString("\nNearest text:\n" + e.Nearest)
	}
	return b.String()
}

func newError(format string, args ...any) *Error {
	return &Error{Problem: fmt.Sprintf(format, args...)}
}

// ParseBlocks reads the blocks of a patch. Text between blocks may only be blank.
func ParseBlocks(ctx context.Context, patch string) ([]Block, error) {
	r := blockReader{}
	n := 0
	for line := range strings.SplitSeq(strings.ReplaceAll(patch, "\r\n", "\n"), "\n") {
		if n++; n%linesPerCheck == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !r.readLine(line) {
			return nil, newError("line %d of the patch (%.60q) is misplaced. A patch is blocks of this form:\n%s",
				n, line, Example)
		}
		if len(r.blocks) > MaxBlocks {
			return nil, newError("the patch has more than %d blocks. "+
				"Send them in several calls, or rewrite the skill in execute_code.", MaxBlocks)
		}
	}
	if r.part != "" {
		return nil, &Error{Block: len(r.blocks) + 1,
			Problem: "the block does not end. It needs the lines " + middleMark + " and " + replaceMark + "."}
	}
	if len(r.blocks) == 0 {
		return nil, newError("the patch has no block. A patch is blocks of this form:\n%s", Example)
	}
	return r.blocks, nil
}

// linesPerCheck is the number of lines between two checks of ctx.
const linesPerCheck = 1024

// blockReader reads a patch line by line.
type blockReader struct {
	blocks          []Block
	part            string // the mark before the present part; empty between blocks
	search, replace strings.Builder
}

// readLine reads one line. It returns false if the line is misplaced.
func (r *blockReader) readLine(line string) bool {
	mark := strings.TrimRight(line, " \t")
	switch {
	case r.part == "" && mark == searchMark:
		r.part = searchMark
	case r.part == searchMark && mark == middleMark:
		r.part = middleMark
	case r.part == middleMark && mark == replaceMark:
		r.blocks = append(r.blocks, Block{Search: r.search.String(), Replace: r.replace.String()})
		r.part = ""
		r.search.Reset()
		r.replace.Reset()
	case r.part == searchMark && mark != replaceMark && mark != searchMark:
		r.search.WriteString(line)
		r.search.WriteByte('\n')
	case r.part == middleMark && mark != searchMark:
		r.replace.WriteString(line)
		r.replace.WriteByte('\n')
	case mark == "" && r.part == "":
	default:
		return false
	}
	return true
}

// ApplyBlocks applies the blocks to text in order. On an error it returns the text unchanged. The error names the
// failed block, or is ctx's. An empty SEARCH is allowed only for an empty text. The result may have up to most bytes.
func ApplyBlocks(ctx context.Context, text string, blocks []Block, most int) (string, error) {
	if len(blocks) > MaxBlocks {
		return text, &Error{Problem: fmt.Sprintf("more than %d blocks", MaxBlocks)}
	}
	// Models write line feeds only, so a text with CRLF would match no block.
	out := strings.ReplaceAll(text, "\r\n", "\n")
	crlf := out != text
	// SEARCH ends in a line feed, so the last line of the text needs one as well.
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	for i, b := range blocks {
		next, err := replaceBlock(ctx, out, b)
		if problem, is := err.(*Error); is { //nolint:errorlint // made here
			problem.Block = i + 1
		}
		if err != nil {
			// All or none: earlier blocks are dropped too.
			return text, err
		}
		if len(next) > most {
			return text, newTooLarge(len(next), most)
		}
		out = next
	}
	// The line ends of the file stay as they were.
	if crlf {
		out = strings.ReplaceAll(out, "\n", "\r\n")
	}
	if len(out) > most {
		return text, newTooLarge(len(out), most)
	}
	return out, nil
}

func newTooLarge(have, most int) error {
	return &Error{Problem: fmt.Sprintf("the skill would have %d bytes, %d are allowed.", have, most)}
}

// replaceBlock applies one block. It matches the search text only at line starts, because SEARCH consists of whole
// lines.
func replaceBlock(ctx context.Context, text string, b Block) (string, error) {
	if b.Search == "" {
		if text == "" {
			return b.Replace, nil
		}
		return "", &Error{Problem: "SEARCH is empty. To add lines, search for the lines next to them."}
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	// Only whole lines match. So a match includes the line feed before the lines.
	lines, search := "\n"+text, "\n"+b.Search
	at := strings.Index(lines, search)
	switch {
	case at < 0:
		near, err := nearestLines(ctx, text, b.Search)
		if err != nil {
			return "", err
		}
		return "", &Error{Problem: "the SEARCH text does not occur.", Nearest: near}
	case strings.Contains(lines[at+1:], search):
		return "", newError("the SEARCH text occurs more than once. Add lines around it until it is unique.")
	}
	return text[:at] + b.Replace + text[at+len(b.Search):], nil
}
