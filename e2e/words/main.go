// Command words measures how the project reads: its names, comments, messages and documentation. It compares each figure
// with its ceiling in ceilings.txt and exits with 1 if a figure is above it, or so far below that the ceiling must follow.
//
//	go run ./words [-list FIGURE]
//
// With -list it prints the places that count for a figure instead.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func main() {
	list := flag.String("list", "", "print the places that count for this `FIGURE`")
	flag.Parse()
	if err := run(*list, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}

func run(list string, out io.Writer) error {
	root, err := testkit.FindRoot()
	if err != nil {
		return err
	}
	texts, err := readProject(root)
	if err != nil {
		return err
	}
	figures := texts.measure()
	if list != "" {
		for _, f := range figures {
			for _, p := range f.places {
				if f.name == list {
					fmt.Fprintln(out, p)
				}
			}
		}
		return nil
	}
	ceilings, err := readCeilings(filepath.Join(root, "e2e", "words", "ceilings.txt"))
	if err != nil {
		return err
	}
	return compare(figures, ceilings, out)
}

// slack is how far below its ceiling a figure may be, as a part of the ceiling. A figure further below lets the next change
// undo an improvement.
const slack = 0.1

// compare prints each figure with its ceiling, and returns an error if one is above its ceiling or without one.
func compare(figures []figure, ceilings map[string]float64, out io.Writer) error {
	var wrong []string
	for _, f := range figures {
		ceiling, isKnown := ceilings[f.name]
		note := ""
		switch {
		case !isKnown:
			note = "has no ceiling in e2e/words/ceilings.txt"
		case f.isFloor && f.value < ceiling:
			note = "is below its floor"
		case !f.isFloor && f.value > ceiling:
			note = "is above its ceiling: go run ./words -list " + f.name + " in e2e/ prints the places"
		}
		fmt.Fprintf(out, "%-22s %7.2f  %-40s %7.2f  %s\n", f.name, f.value, f.unit, ceiling, note)
		if note != "" {
			wrong = append(wrong, f.name+" "+note)
		}
		if isKnown && !f.isFloor && note == "" && f.value < ceiling*(1-slack) {
			fmt.Fprintf(out, "%22s lower its ceiling to %.2f in e2e/words/ceilings.txt\n", "", f.value)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "\n       "))
	}
	return nil
}

// readCeilings reads lines of a name and a number. # begins a comment.
func readCeilings(path string) (map[string]float64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	out := map[string]float64{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		name, number, ok := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("%s: %q: want a name and a number", path, line)
		}
		out[name] = value
	}
	return out, nil
}
