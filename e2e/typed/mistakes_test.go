package typed

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// documents are those that the scripts are written over, by their names in the directory.
var documents = map[string]string{
	"stripe": "stripe.com", "github": "github.com/api.github.com", "slack": "slack.com", "asana": "asana.com",
	"digitalocean": "digitalocean.com", "notion": "notion.com", "openai": "openai.com", "box": "box.com",
	"plaid": "plaid.com", "twilio": "twilio.com/api",
}

const (
	scriptsEach = 10
	wantCaught  = 85 // of 100
)

// script is one call of an operation, and a property of its answer.
type script struct {
	api       string
	operation string
	input     *value
	answer    string // e.g. .data[0].id
	known     []string
}

func (s script) code() string { return joinScripts(s.api, []script{s}) }

// joinScripts returns code with a function for each script of an API. It prints the type of a function.
func joinScripts(api string, scripts []script) string {
	var b strings.Builder
	fmt.Fprintf(&b, "import { %s } from \"/apis/%s.ts\";\n", api, api)
	for i, s := range scripts {
		fmt.Fprintf(&b, "export async function task%d() {\n  const answer = await %s(%q, %s);\n  return answer%s;\n}\n",
			i, api, s.operation, s.input.code(), s.answer)
	}
	return b.String() + "console.log(typeof task0);\n"
}

var inPath = regexp.MustCompile(`\{([^{}]+)\}`)

// write writes a script of an operation that is right by its document, or false if it takes nothing.
func (d document) write(random *rand.Rand, l operation.Line) (script, bool) {
	s := script{api: d.name, operation: l.Method + " " + l.Path, input: &value{kind: object}}
	part := func(name string, v *value) {
		if v != nil && (v.kind != object || len(v.fields) > 0 || name == "body") {
			s.input.fields = append(s.input.fields, field{name, v, true})
		}
	}
	path := &value{kind: object}
	given, _ := d.fields(parseType(l.Params))
	for _, m := range inPath.FindAllStringSubmatch(l.Path, -1) {
		name := strings.TrimSuffix(m[1], "+")
		v := &value{kind: str, text: "id"}
		for _, g := range given {
			if g.name == name {
				v = d.sample(random, g.ts, 0)
			}
		}
		if v == nil {
			return s, false
		}
		path.fields = append(path.fields, field{name, v, true})
	}
	part("path", path)
	for _, p := range [][2]string{{"query", l.Query}, {"body", l.Body}} {
		if p[1] == "" {
			continue
		}
		v := d.sample(random, parseType(p[1]), 0)
		if v == nil {
			return s, false
		}
		part(p[0], v)
	}
	if required, _ := d.fields(parseType(l.Headers)); slices.ContainsFunc(required, func(m member) bool { return !m.optional }) {
		v := d.sample(random, parseType(l.Headers), 0)
		part("headers", v)
	}
	t := parseType(l.Answer)
	for range 3 {
		t = d.resolve(t)
		if t.kind == "array" {
			s.answer, t = s.answer+"[0]", d.resolve(t.parts[0])
		}
		members, open := d.fields(t)
		if open || len(members) == 0 {
			break
		}
		m := members[random.IntN(len(members))]
		s.known = nil
		for _, x := range members {
			s.known = append(s.known, x.name)
		}
		name, _ := json.Marshal(m.name) // it is UTF-8
		s.answer += "[" + string(name) + "]"
		if identifier.MatchString(m.name) {
			s.answer = strings.TrimSuffix(s.answer, "["+string(name)+"]") + "." + m.name
		}
		t = m.ts
		if random.IntN(2) == 0 {
			break
		}
	}
	return s, len(s.input.fields) > 0
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// mistakes are the ways to break a script, each false if it has nothing to break.
var mistakes = []struct {
	name  string
	apply func(*rand.Rand, document, *script) bool
}{
	{"path misspelt", func(_ *rand.Rand, _ document, s *script) bool {
		method, path, _ := strings.Cut(s.operation, " ")
		segments := strings.Split(path, "/")
		for i, segment := range slices.Backward(segments) {
			if len(segment) > 3 && !strings.Contains(segment, "{") {
				segments[i] = segment[:len(segment)-1]
				s.operation = method + " " + strings.Join(segments, "/")
				return true
			}
		}
		return false
	}},
	{"another method", func(_ *rand.Rand, d document, s *script) bool {
		method, path, _ := strings.Cut(s.operation, " ")
		for _, other := range []string{"PUT", "PATCH", "POST", "GET", "DELETE"} {
			key := other + " " + path
			if other != method && !slices.ContainsFunc(d.operations, func(l operation.Line) bool { return l.Method+" "+l.Path == key }) {
				s.operation = key
				return true
			}
		}
		return false
	}},
	{"parameter of the path misspelt", inPart("path", misspell)},
	{"parameter of the query misspelt", inPart("query", misspell)},
	{"field of the body misspelt", inPart("body", misspell)},
	{"required field left out", inPart("body", leaveOut)},
	{"part left out", func(_ *rand.Rand, _ document, s *script) bool {
		i := slices.IndexFunc(s.input.fields, func(f field) bool { return f.name == "path" })
		if i >= 0 {
			s.input.fields = slices.Delete(slices.Clone(s.input.fields), i, i+1)
		}
		return i >= 0
	}},
	{"part misspelt", func(_ *rand.Rand, _ document, s *script) bool {
		other := map[string]string{"path": "params", "body": "data", "query": "parameters", "headers": "header"}
		s.input.fields[0].name = other[s.input.fields[0].name]
		return true
	}},
	{"value of another type", func(_ *rand.Rand, _ document, s *script) bool {
		return change(s.input, func(v *value) bool {
			switch v.kind {
			case number:
				*v = value{kind: str, text: "seven"}
			case array:
				*v = value{kind: word, text: "true"}
			default:
				return false
			}
			return true
		})
	}},
	{"value that is not allowed", func(_ *rand.Rand, _ document, s *script) bool {
		return change(s.input, func(v *value) bool {
			if v.kind != choice {
				return false
			}
			v.text += "x"
			return true
		})
	}},
	{"property of the answer misspelt", func(_ *rand.Rand, _ document, s *script) bool {
		at := strings.LastIndex(s.answer, ".")
		if at < 0 || strings.Contains(s.answer[at:], "[") || len(s.answer)-at < 4 || slices.Contains(s.known, s.answer[at+1:len(s.answer)-1]) {
			return false
		}
		s.answer = s.answer[:len(s.answer)-1]
		return true
	}},
}

// inPart breaks one of the objects of a part.
func inPart(part string, apply func(*rand.Rand, *value) bool) func(*rand.Rand, document, *script) bool {
	return func(random *rand.Rand, _ document, s *script) bool {
		i := slices.IndexFunc(s.input.fields, func(f field) bool { return f.name == part })
		return i >= 0 && s.input.fields[i].value.kind == object && apply(random, s.input.fields[i].value)
	}
}

func misspell(random *rand.Rand, v *value) bool {
	if len(v.fields) == 0 {
		return false
	}
	f := &v.fields[random.IntN(len(v.fields))]
	f.name += "x"
	return true
}

func leaveOut(_ *rand.Rand, v *value) bool {
	i := slices.IndexFunc(v.fields, func(f field) bool { return f.required })
	if i >= 0 {
		v.fields = slices.Delete(v.fields, i, i+1)
	}
	return i >= 0
}

// change changes the first value that f changes.
func change(in *value, f func(*value) bool) (done bool) {
	in.each(func(v *value) { done = done || f(v) })
	return done
}

// TestMistakes: of 100 mistakes in scripts over ten documents at least 85 are found before the run, and none of the 100
// scripts without a mistake is refused.
func TestMistakes(t *testing.T) {
	random := rand.New(rand.NewPCG(19, 85)) //nolint:gosec // the same scripts every time
	var apis []world.API
	var right, wrong []script
	var kinds []string
	turn := 0
	for _, name := range sortedKeys(documents) {
		d := imported(t, name, documents[name])
		apis = append(apis, d.api())
		for n, tries := 0, 0; n < scriptsEach; tries++ {
			if tries == 1000 {
				t.Fatalf("%s has no operations to write scripts of", name)
			}
			l := d.operations[random.IntN(len(d.operations))]
			seed := random.Uint64()
			s, ok := d.write(rand.New(rand.NewPCG(seed, 1)), l) //nolint:gosec // as above
			if !ok {
				continue
			}
			for try := range mistakes {
				m := mistakes[(turn+try)%len(mistakes)]
				broken, _ := d.write(rand.New(rand.NewPCG(seed, 1)), l) //nolint:gosec // as above
				if m.apply(random, d, &broken) {
					right, wrong, kinds = append(right, s), append(wrong, broken), append(kinds, m.name)
					turn += try + 1
					n++
					break
				}
			}
		}
	}
	w := world.Start(t, world.Config{APIs: apis})
	refused, caught := 0, 0
	count := map[string][2]int{}
	// The check of a program takes half a second, whatever its length. So the right scripts of an API are one program.
	for all := range slices.Chunk(right, scriptsEach) {
		res := w.MustExecute(t, joinScripts(all[0].api, all), all[0].api)
		if !res.IsError && res.Out == "function\n" {
			continue
		}
		t.Errorf("right scripts of %s were refused:\n%s", all[0].api, res.Out)
		for _, s := range all {
			if res := w.MustExecute(t, s.code(), s.api); res.IsError || res.Out != "function\n" {
				refused++
				t.Logf("refused:\n%s\n%s", s.code(), res.Out)
			}
		}
	}
	for i := range wrong {
		res := w.MustExecute(t, wrong[i].code(), wrong[i].api)
		c := count[kinds[i]]
		c[1]++
		if res.IsError && strings.HasPrefix(res.Out, "Type errors, not run:") {
			caught++
			c[0]++
		} else {
			t.Logf("not caught (%s):\n%s\n%s", kinds[i], wrong[i].code(), res.Out)
		}
		count[kinds[i]] = c
	}
	for _, m := range mistakes {
		t.Logf("%-35s %d of %d", m.name, count[m.name][0], count[m.name][1])
	}
	t.Logf("%d of %d mistakes were found before the run; %d of %d right scripts were refused", caught, len(wrong), refused, len(right))
	if caught*100 < wantCaught*len(wrong) {
		t.Errorf("%d of %d; want %d of 100", caught, len(wrong), wantCaught)
	}
}

func sortedKeys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
