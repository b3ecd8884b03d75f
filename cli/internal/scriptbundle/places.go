package scriptbundle

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// placeMap maps places in bundled code to places in the original files.
type placeMap struct {
	sources []string
	lines   [][]placeMark // by line of the bundled code, in the order of columns
}

// placeMark is the origin of the code from a column on. All numbers start at 0.
type placeMark struct{ column, source, line, from int }

// newPlaces parses a source map, https://tc39.es/ecma426/.
func newPlaces(data []byte) (*placeMap, error) {
	var m struct {
		Sources  []string `json:"sources"`
		Mappings string   `json:"mappings"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("reading a source map: %w", err)
	}
	p := &placeMap{sources: m.Sources}
	var at placeMark // all numbers except the column are relative to the last mark
	for text := range strings.SplitSeq(m.Mappings, ";") {
		var line []placeMark
		at.column = 0
		for segment := range strings.SplitSeq(text, ",") {
			n, err := parseNumbers(segment)
			if err != nil {
				return nil, err
			}
			if len(n) == 0 {
				continue
			}
			at.column += n[0]
			if len(n) < 4 { // generated code without an original
				continue
			}
			at.source, at.line, at.from = at.source+n[1], at.line+n[2], at.from+n[3]
			if at.source < 0 || at.source >= len(m.Sources) {
				return nil, errors.New("reading a source map: a source that it does not list")
			}
			line = append(line, at)
		}
		p.lines = append(p.lines, line)
	}
	return p, nil
}

// digits are the digits of Base64, six bits each.
const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// parseNumbers parses variable-length numbers. Each digit has five bits, the lowest first, and a sixth bit that is set
// if more digits follow. The lowest bit of a number is its sign.
func parseNumbers(text string) ([]int, error) {
	var out []int
	value, shift := 0, 0
	for i := range len(text) {
		d := strings.IndexByte(digits, text[i])
		if d < 0 || shift > 30 {
			return nil, errors.New("reading a source map: a value that is not a number")
		}
		value |= d & 31 << shift
		if shift += 5; d&32 != 0 {
			continue
		}
		n := value >> 1
		if value&1 != 0 {
			n = -n
		}
		out, value, shift = append(out, n), 0, 0
	}
	return out, nil
}

// inMain matches a place in the sent code, as errors name it.
var inMain = regexp.MustCompile(`file:///code/main\.ts:(\d{1,9}):(\d{1,9})`)

// restorePlaces replaces places in the bundled code by places in the files, counted from 1.
func (p *placeMap) restorePlaces(text string) string {
	return inMain.ReplaceAllStringFunc(text, func(found string) string {
		m := inMain.FindStringSubmatch(found)
		line, _ := strconv.Atoi(m[1]) // nine digits at the most
		column, _ := strconv.Atoi(m[2])
		if line < 1 || line > len(p.lines) {
			return found
		}
		marks := p.lines[line-1]
		i, exact := slices.BinarySearchFunc(marks, column-1, func(m placeMark, c int) int { return cmp.Compare(m.column, c) })
		if !exact {
			i--
		}
		if i < 0 {
			return found
		}
		return fmt.Sprintf("%s:%d:%d", p.sources[marks[i].source], marks[i].line+1, marks[i].from+1)
	})
}
