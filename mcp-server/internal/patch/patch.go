// Package patch applies SEARCH/REPLACE blocks to a text, all of them or none.
//
//	<<<<<<< SEARCH
//	text as it is, whole lines
//	=======
//	text as it shall be
//	>>>>>>> REPLACE
//
// Blocks apply in order, each to what the ones before it made. A block's SEARCH text must occur exactly once: a text that
// occurs twice is as unclear as one that does not occur.
package patch

import (
	"fmt"
	"strings"
)

const (
	searchMark  = "<<<<<<< SEARCH"
	middleMark  = "======="
	replaceMark = ">>>>>>> REPLACE"
)

// Example is a patch that shows the form.
const Example = searchMark + "\nconst limit = 10;\n" + middleMark + "\nconst limit = 100;\n" + replaceMark

// Block is one replacement. Both texts end in a line feed unless they are empty.
type Block struct{ Search, Replace string }

// Error says why a patch was refused, for the model that wrote it.
type Error struct {
	// Block counts from 1; zero means the patch as a whole.
	Block int
	// Problem is one sentence.
	Problem string
	// Nearest is the part of the text that looks most like what was searched, or empty.
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

// Parse reads the blocks of a patch. Text between blocks may only be blank.
func Parse(patch string) ([]Block, error) {
	var blocks []Block
	var b Block
	part := ""
	for n, line := range strings.Split(strings.ReplaceAll(patch, "\r\n", "\n"), "\n") {
		mark := strings.TrimRight(line, " \t")
		switch {
		case part == "" && mark == searchMark:
			part, b = searchMark, Block{}
		case part == searchMark && mark == middleMark:
			part = middleMark
		case part == middleMark && mark == replaceMark:
			part, blocks = "", append(blocks, b)
		case part == searchMark && mark != replaceMark && mark != searchMark:
			b.Search += line + "\n"
		case part == middleMark && mark != searchMark:
			b.Replace += line + "\n"
		case mark == "" && part == "":
		default:
			return nil, &Error{Problem: fmt.Sprintf("line %d of the patch (%.60q) is not where it may stand. A patch is blocks of this form:\n%s", n+1, line, Example)}
		}
	}
	if part != "" {
		return nil, &Error{Block: len(blocks) + 1, Problem: "the block does not end. It needs the lines " + middleMark + " and " + replaceMark + "."}
	}
	if len(blocks) == 0 {
		return nil, &Error{Problem: "the patch has no block. A patch is blocks of this form:\n" + Example}
	}
	return blocks, nil
}

// Apply applies the blocks to text in order. On an error the text is unchanged and the error says which block failed.
// An empty SEARCH is allowed only for an empty text.
func Apply(text string, blocks []Block) (string, error) {
	out := strings.ReplaceAll(text, "\r\n", "\n")
	crlf := out != text
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	for i, b := range blocks {
		next, problem := replace(out, b)
		if problem != nil {
			problem.Block = i + 1
			return text, problem
		}
		out = next
	}
	if crlf {
		out = strings.ReplaceAll(out, "\n", "\r\n")
	}
	return out, nil
}

// replace applies one block. The search text is matched at line starts only, as it consists of whole lines.
func replace(text string, b Block) (string, *Error) {
	if b.Search == "" {
		if text == "" {
			return b.Replace, nil
		}
		return "", &Error{Problem: "SEARCH is empty. To add lines, search for the lines next to them."}
	}
	at, count := -1, 0
	for from := 0; ; {
		i := strings.Index(text[from:], b.Search)
		if i < 0 {
			break
		}
		i += from
		if i == 0 || text[i-1] == '\n' {
			if count == 0 {
				at = i
			}
			count++
		}
		from = i + 1
	}
	switch count {
	case 0:
		return "", &Error{Problem: "the SEARCH text does not occur. Nothing was changed.", Nearest: nearest(text, b.Search)}
	case 1:
		return text[:at] + b.Replace + text[at+len(b.Search):], nil
	}
	return "", &Error{Problem: fmt.Sprintf("the SEARCH text occurs %d times. Add lines around it until it is unique. Nothing was changed.", count)}
}
