package catalog

import (
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// Limits bound the requests of all runs together to one API.
type Limits struct {
	// Calls bounds requests. Writes bounds requests with methods other than GET, HEAD and OPTIONS. Sum bounds the sum of a
	// field in the writes on a path. Nil means no bound.
	Calls, Writes *Limit
	Sum           *SumLimit
	// OverApprove lets a person approve requests beyond a limit. Otherwise they are refused.
	OverApprove bool
}

// Limit is an amount per time. In a SumLimit the amount is in millionths.
type Limit struct {
	Most int64
	Per  time.Duration
	text string
}

// String returns the limit as in config.json.
func (l Limit) String() string { return l.text }

// SumLimit is a Limit on the sum of a field.
type SumLimit struct {
	Limit
	Path, Field string
	at          Rule
}

// MatchesPath reports whether a request on a path counts. It fails if servers could read the path in different ways.
func (s *SumLimit) MatchesPath(path string) (bool, error) {
	r, err := FindRule([]Rule{s.at}, "", path, nil)
	return r != nil, err
}

// String returns the limits in a few words, for people and models.
func (l *Limits) String() string {
	if l == nil {
		return ""
	}
	var out []string
	if l.Calls != nil {
		out = append(out, "calls "+l.Calls.text)
	}
	if l.Writes != nil {
		out = append(out, "writes "+l.Writes.text)
	}
	if l.Sum != nil {
		out = append(out, fmt.Sprintf("sum of %s on %s %s", l.Sum.Field, l.Sum.Path, l.Sum.text))
	}
	over := "limit "
	if l.OverApprove {
		over = "approve beyond "
	}
	return over + strings.Join(out, ", ")
}

// ParseMillionths parses a non-negative number in plain decimal notation with at most six decimals, and returns it in
// millionths.
func ParseMillionths(text string) (int64, bool) {
	n, ok := ParseDecimal(text)
	if !ok || n.Sign() < 0 {
		return 0, false
	}
	n.Mul(n, big.NewRat(1_000_000, 1))
	// More than six decimals, or too large to be counted.
	if !n.IsInt() || !n.Num().IsInt64() {
		return 0, false
	}
	return n.Num().Int64(), true
}

var perUnits = map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

func limitsFields() fieldSpecs[Limits] {
	return fieldSpecs[Limits]{
		{"calls", func(d *configDecoder, l *Limits, f string, n *node) { l.Calls = d.readLimit(f, n, 1) }},
		{"writes", func(d *configDecoder, l *Limits, f string, n *node) { l.Writes = d.readLimit(f, n, 1) }},
		{"sum", func(d *configDecoder, l *Limits, f string, n *node) { l.Sum = d.readSumLimit(f, n) }},
		{"over", func(d *configDecoder, l *Limits, f string, n *node) {
			over := ""
			d.ReadString(f, n, &over)
			if l.OverApprove = over == "approve"; !l.OverApprove && over != "refuse" {
				d.AddError(f, quoteChoice(over), `"refuse" or "approve"`)
			}
		}},
	}
}

func sumFields() fieldSpecs[SumLimit] {
	return fieldSpecs[SumLimit]{
		stringField("path", func(s *SumLimit) *string { return &s.Path }),
		stringField("field", func(s *SumLimit) *string { return &s.Field }),
		{"max", func(d *configDecoder, s *SumLimit, f string, n *node) {
			if l := d.readLimit(f, n, 1_000_000); l != nil {
				s.Limit = *l
			}
		}},
	}
}

func (d *configDecoder) readLimits(n *node) *Limits {
	const example = `an object, e.g. {"calls": "600/h"}`
	if n.Kind != jsonread.Object || len(n.Members) == 0 {
		d.AddError("limits", n.Kind.String(), example)
		return nil
	}
	l := &Limits{}
	limitsFields().decodeObject(d, "limits.", n, l)
	if l.Calls == nil && l.Writes == nil && l.Sum == nil {
		d.AddError("limits", "no limit", example)
	}
	return l
}

// readLimit reads an amount per time. parts is the number of counted parts of one unit.
func (d *configDecoder) readLimit(at string, n *node, parts int64) *Limit {
	text := ""
	d.ReadString(at, n, &text)
	amount, unit, _ := strings.Cut(text, "/")
	most, ok := ParseMillionths(amount)
	// A limit on requests must be whole; a sum may have decimals.
	if per := perUnits[unit]; ok && per != 0 && most > 0 && (parts > 1 || most%1_000_000 == 0) {
		return &Limit{Most: most / (1_000_000 / parts), Per: per, text: text}
	}
	d.AddError(at, "not an amount per time", `a number, a slash and m, h or d, e.g. "600/h"`)
	return nil
}

func (d *configDecoder) readSumLimit(at string, n *node) *SumLimit {
	if n.Kind != jsonread.Object {
		d.AddError(at, n.Kind.String(), `an object, e.g. {"path": "/v1/refunds", "field": "amount", "max": "100000/d"}`)
		return nil
	}
	s := &SumLimit{}
	sumFields().decodeObject(d, at+".", n, s)
	if why := pathProblem(s.Path); s.Path == "" || why != "" {
		d.AddError(at+".path", "missing, or "+why, `a path as in a rule, e.g. "/v1/refunds"`)
		return nil
	}
	if s.Field == "" || s.Most == 0 {
		d.AddError(at, "no field or no max", `{"path": "/v1/refunds", "field": "amount", "max": "100000/d"}`)
		return nil
	}
	// A refusing rule also matches the other spellings that a server may accept.
	s.at = Rule{Then: ActionRefuse, Path: s.Path}
	s.at.compilePath()
	return s
}
