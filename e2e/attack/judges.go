package attack

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
)

// line is one line that show, raw or why printed.
type line struct {
	Status   int    `json:"status"`
	Statuses []int  `json:"statuses"`
	Code     string `json:"code"`
	Text     string `json:"text"`
	Error    string `json:"error"`
	Kind     string `json:"kind"`
	Length   int    `json:"length"`
	Held     *bool  `json:"held"` // a verdict of the code itself
	Seen     string `json:"seen"`
}

// lines are the JSON lines of the output.
func (e *Evidence) lines() []line {
	var all []line
	for text := range strings.Lines(e.Result.Out) {
		var l line
		if json.Unmarshal([]byte(text), &l) == nil {
			all = append(all, l)
		}
	}
	return all
}

// mistakes are what the interpreter says of code that is wrong in itself.
var mistakes = regexp.MustCompile(`(ReferenceError|SyntaxError): |is not a (function|constructor)|is not (defined|iterable)|Cannot (read|set) propert`)

// pythonMistakes is the same of Python.
var pythonMistakes = regexp.MustCompile(`(?m)^(NameError|UnboundLocalError|AttributeError|SyntaxError|IndentationError|TypeError|ImportError|ModuleNotFoundError|ValueError|KeyError): .*`)

// misfired says what was wrong with the code of an attack itself, or nothing: such an attack was never mounted, and
// what it prints of its failure must not pass for a refusal.
func (e *Evidence) misfired() string {
	for _, l := range e.lines() {
		if l.Kind == "ReferenceError" || l.Kind == "SyntaxError" || l.Kind == "TypeError" && mistakes.MatchString(l.Error) {
			return l.Kind + ": " + clip(l.Error, 80)
		}
	}
	if thrown := pythonMistakes.FindString(e.Result.Out + e.Result.Notes); thrown != "" {
		return clip(thrown, 100)
	}
	if _, thrown, ok := strings.Cut(e.Result.Out, "Uncaught"); ok && mistakes.MatchString(thrown) {
		return clip(strings.ReplaceAll(thrown, "\n", " "), 100)
	}
	return ""
}

// wall is how long the code ran, or how long was waited for a run that did not end.
func (e *Evidence) wall() time.Duration {
	var r struct {
		Meta struct {
			Exit *struct {
				WallMS int64 `json:"wall_ms"`
			} `json:"codeforge/exit"`
		} `json:"_meta"`
	}
	if json.Unmarshal([]byte(e.Result.JSON), &r) != nil || r.Meta.Exit == nil {
		return e.Took
	}
	return time.Duration(r.Meta.Exit.WallMS) * time.Millisecond
}

// brief says what the code saw, in a few words.
func (e *Evidence) brief() string {
	if e.Failed != nil {
		return clip(e.Failed.Error(), 80)
	}
	var parts []string
	for _, l := range e.lines() {
		switch {
		case l.Error != "":
			parts = append(parts, "error: "+clip(strings.ReplaceAll(l.Error, "\n", " "), 60))
		case l.Code != "":
			parts = append(parts, fmt.Sprintf("%d %s", l.Status, l.Code))
		case l.Status != 0:
			parts = append(parts, fmt.Sprint(l.Status))
		case l.Seen != "":
			parts = append(parts, l.Seen)
		default:
			parts = append(parts, "cut")
		}
	}
	if len(parts) == 0 {
		return "nothing printed: " + clip(strings.ReplaceAll(e.Result.Out, "\n", " "), 80)
	}
	if len(parts) > 4 {
		parts = append(parts[:3], fmt.Sprintf("... %d in all", len(parts)))
	}
	return strings.Join(parts, ", ")
}

// got reports whether the upstream received the credential of a token name in this trial.
func (e *Evidence) got(token string) bool {
	c := e.World.Canaries[token]
	for _, s := range e.Arrived {
		data, err := json.Marshal(struct {
			Target, Headers any
			Body            string
		}{s.Target, s.Header, string(s.Body)})
		if err != nil {
			continue
		}
		if c.Find(data) != "" || c.Find(s.Body) != "" {
			return true
		}
		for _, values := range s.Header {
			for _, v := range values {
				if strings.Contains(v, c.Value()) {
					return true
				}
			}
		}
	}
	return false
}

// refused: nothing of the trial reached the upstream, and every attempt printed a refusal. When codes are given the
// proxy must have given one of them.
func refused(codes ...string) Judge {
	return func(e *Evidence) (string, bool) {
		ls := e.lines()
		if len(e.Arrived) > 0 || len(ls) == 0 {
			return fmt.Sprintf("%s; %d arrived", e.brief(), len(e.Arrived)), false
		}
		for _, l := range ls {
			denied := l.Error != "" || l.Status >= 400 || l.Status == 0 && l.Seen == ""
			if !denied || len(codes) > 0 && !slices.Contains(codes, l.Code) {
				return e.brief(), false
			}
		}
		return e.brief(), true
	}
}

// failed reports that the code printed something, and nothing but failures.
func (e *Evidence) failed() bool {
	ls := e.lines()
	return len(ls) > 0 && !slices.ContainsFunc(ls, func(l line) bool { return l.Error == "" && l.Status > 0 && l.Status < 400 })
}

// unswapped: the request arrived, without the credential of the token name; the receipt has a hint when hint is set.
func unswapped(token string, hint bool) Judge {
	return func(e *Evidence) (string, bool) {
		switch {
		case e.got(token):
			return "the credential arrived", false
		case len(e.Arrived) == 0:
			return "did not arrive: " + e.brief(), e.failed()
		case hint && len(e.Result.Receipt.Hints) == 0:
			return "literal, but without a hint", false
		}
		return "the name arrived literally", true
	}
}

// scrubbed: the upstream received the credential, the code got an answer, and no form of it was in the answer. With
// named the token name stands in its place.
func scrubbed(token string, named bool) Judge {
	return func(e *Evidence) (string, bool) {
		ls := e.lines()
		switch {
		case !e.got(token):
			return "the credential never reached the upstream: " + e.brief(), false
		case len(ls) == 0:
			return "nothing printed", false
		case named && !strings.Contains(e.Result.Out, token):
			return "no leak, but the name is not shown: " + e.brief(), false
		case strings.Contains(e.Result.Out, token):
			return "scrubbed to the name", true
		}
		return "no leak: " + e.brief(), true
	}
}

// notEchoed: the upstream had the credential from elsewhere and answered with it; no form of it came through.
func notEchoed(named string) Judge {
	return func(e *Evidence) (string, bool) {
		if len(e.Arrived) == 0 {
			return "the request never reached the upstream: " + e.brief(), false
		}
		if !strings.Contains(e.Result.Out, named) {
			return "no leak, but the name is not shown: " + e.brief(), false
		}
		return "scrubbed to the name", true
	}
}

// verdicts: the code judged itself, with lines of {held, seen}; all must hold.
func verdicts() Judge {
	return func(e *Evidence) (string, bool) {
		ls, n := e.lines(), 0
		for _, l := range ls {
			if l.Held == nil {
				continue
			}
			if n++; !*l.Held {
				return l.Seen, false
			}
		}
		switch {
		case n > 0:
			return e.brief(), true
		case e.Result.IsError && (strings.Contains(e.Result.Out, "NotCapable") || strings.Contains(e.Result.Out, "Unstable API")):
			return "the interpreter refuses", true
		}
		return "no verdict: " + clip(e.Result.Out, 100), false
	}
}

// swapped: a positive control, so that the attacks next to it cannot hold by accident.
func swapped(token string) Judge {
	return func(e *Evidence) (string, bool) {
		if !e.got(token) {
			return "the credential did not arrive: " + e.brief(), false
		}
		return "swapped", true
	}
}

// swappedAt: the credential arrived, and nowhere but at a port of the upstream.
func swappedAt(token, port string) Judge {
	return func(e *Evidence) (string, bool) {
		there, elsewhere := *e, *e
		there.Arrived, elsewhere.Arrived = nil, nil
		for _, s := range e.Arrived {
			if strings.HasSuffix(s.Local, port) {
				there.Arrived = append(there.Arrived, s)
			} else {
				elsewhere.Arrived = append(elsewhere.Arrived, s)
			}
		}
		switch {
		case elsewhere.got(token):
			return "the credential arrived at another port", false
		case !there.got(token):
			return "the credential did not arrive: " + e.brief(), false
		}
		return "swapped at " + port + " alone", true
	}
}

// both: two judges hold.
func both(a, b Judge) Judge {
	return func(e *Evidence) (string, bool) {
		if seen, held := a(e); !held {
			return seen, false
		}
		return b(e)
	}
}

// never: a request of the trial arrived, and none whose path has this word.
func never(word string) Judge {
	return func(e *Evidence) (string, bool) {
		hit := slices.ContainsFunc(e.Arrived, func(s upstream.Seen) bool {
			path, _, _ := strings.Cut(s.Target, "?")
			return strings.Contains(path, word)
		})
		if hit || len(e.lines()) == 0 || len(e.Arrived) == 0 {
			return fmt.Sprintf("%s; %d arrived", e.brief(), len(e.Arrived)), false
		}
		return e.brief(), true
	}
}
