package patch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/patch"
)

// shapes are texts of n bytes that make naive searches quadratic.
func shapes(n int) map[string][2]string {
	half := n / 2
	fibonacci := func(n int) string {
		a, b := "a\n", "b\na\n"
		for len(b) < n {
			a, b = b, b+a
		}
		return b[:n/2*2]
	}
	return map[string][2]string{ // text, search
		"blank lines":                 {strings.Repeat("\n", n), strings.Repeat("\n", half)},
		"blank lines, more searched":  {strings.Repeat("\n", half), strings.Repeat("\n", n)},
		"one line that repeats":       {strings.Repeat("a\n", half), strings.Repeat("a\n", half/2) + "b\n"},
		"the last byte is other":      {strings.Repeat("\n", n), strings.Repeat("\n", half) + "x\n"},
		"the first byte is other":     {strings.Repeat("\n", n), "x" + strings.Repeat("\n", half)},
		"one byte, no lines":          {strings.Repeat("a", n), strings.Repeat("a", half)},
		"borders within borders":      {fibonacci(n), fibonacci(half) + "c\n"},
		"many words":                  {strings.Repeat("a b c d e f g h\n", n/16), strings.Repeat("h g f e d c b a\n", half/16)},
		"one long line of many words": {strings.Repeat("a b ", n/4), strings.Repeat("b c ", half/4)},
		"white space":                 {strings.Repeat(" \t", n/2), strings.Repeat("\t ", half/2)},
		"CRLF":                        {strings.Repeat("\r\n", half), strings.Repeat("\n", half/2)},
	}
}

// TestLinear: reading and applying a patch takes time in proportion to its size and the text's, whatever repeats in
// them.
// Promise: bounded-work
func TestLinear(t *testing.T) {
	const n = 512 << 10
	for name := range shapes(0x100) {
		t.Run(name, func(t *testing.T) {
			costtest.RequireLinear(t, n, func(n int) func() {
				s := shapes(n)[name]
				return func() {
					parsed, err := patch.ParseBlocks(t.Context(), block(s[1], "x\n"))
					if err != nil {
						return
					}
					_, _ = patch.ApplyBlocks(t.Context(), s[0], parsed, 8<<20)
				}
			})
		})
	}
}

// TestBlocks: so many blocks and no more, also where each searches the whole text.
// Promise: bounded-work
func TestBlocks(t *testing.T) {
	text := strings.Repeat("line\n", 50_000) + "unique\n"
	one := block("unique\n", "unique\n")
	out, err := apply(t, text, strings.Repeat(one, patch.MaxBlocks))
	if err != nil || out != text {
		t.Fatalf("%d blocks: %v", patch.MaxBlocks, err)
	}
	for _, n := range []int{patch.MaxBlocks + 1, 100_000} {
		var e *patch.Error
		if _, err := patch.ParseBlocks(t.Context(), strings.Repeat(one, n)); !errors.As(err, &e) || !strings.Contains(e.Problem, "more than 100 blocks") {
			t.Errorf("%d blocks: %v", n, err)
		}
	}
	var e *patch.Error
	if _, err := patch.ApplyBlocks(t.Context(), text, make([]patch.Block, patch.MaxBlocks+1), 1<<20); !errors.As(err, &e) {
		t.Errorf("blocks that did not come from Parse: %v", err)
	}
}

// TestGrowth: a text that blocks make larger and larger is refused when it is too large, not at the end.
func TestGrowth(t *testing.T) {
	blocks := []patch.Block{{Search: "a\n", Replace: strings.Repeat("b\n", 1<<20) + "a\n"}, {Search: "a\n", Replace: "c\n"}}
	var e *patch.Error
	if out, err := patch.ApplyBlocks(t.Context(), "a\n", blocks, 1<<20); !errors.As(err, &e) || !strings.Contains(e.Problem, "1048576 are allowed") || out != "a\n" {
		t.Errorf("got %d bytes, %v", len(out), err)
	}
	if _, err := patch.ApplyBlocks(t.Context(), "a\r\n", []patch.Block{{Search: "a\n", Replace: "b\n\n\n\n"}}, 5); !errors.As(err, &e) {
		t.Errorf("line ends are not counted: %v", err)
	}
}

// TestCancelled: the work ends with its caller, at every step that can be long.
// Promise: bounded-work
func TestCancelled(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := patch.ParseBlocks(gone, block(strings.Repeat("a\n", 10_000), "")); !errors.Is(err, context.Canceled) {
		t.Errorf("Parse: %v", err)
	}
	text := strings.Repeat("a\nb\n", 100_000)
	for name, search := range map[string]string{"found": "a\nb\na\n", "long": text, "not found": "a c\n"} {
		start := time.Now()
		out, err := patch.ApplyBlocks(gone, text, []patch.Block{{Search: search}}, 1<<20)
		if !errors.Is(err, context.Canceled) || out != text {
			t.Errorf("Apply, %s: %v after %s", name, err, time.Since(start))
		}
	}
}

// TestNearestIsShort: what a refusal quotes is bounded.
func TestNearestIsShort(t *testing.T) {
	long := "alpha beta " + strings.Repeat("x", 100_000) + "\n"
	_, err := apply(t, strings.Repeat(long, 20), block("alpha beta gamma\n", ""))
	if err == nil || len(err.Error()) > 8<<10 {
		t.Errorf("%d bytes", len(err.Error()))
	}
}
