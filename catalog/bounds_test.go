package catalog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/internal/testca"
)

// folder writes apis/<name>/ with these files, by name.
func folder(t testing.TB, dir, name string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// simple is the config of an API with one host and one credential.
func simple(i int, value string) map[string]string {
	return map[string]string{"config.json": fmt.Sprintf(`{"description":"x","domains":["h%d.example.com"],"credentials":{"TOKEN_%d_X":%q}}`, i, i, value)}
}

func mustHost(t testing.TB, name string) Host {
	t.Helper()
	h, err := ParseHost(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestManyFolders: the first 1,000 APIs by name are loaded, the others refused and their hosts closed; what is in force
// stays when there are more.
// Promise: configuration-fails-closed
func TestManyFolders(t *testing.T) {
	dir := t.TempDir()
	for i := range maxAPIs + 3 {
		folder(t, dir, fmt.Sprintf("m%04d", i), simple(i, fmt.Sprintf("sk_live_%08d", i)))
	}
	for i := range 20 { // folders that are no APIs take no place
		folder(t, dir, fmt.Sprintf("a%04d", i), map[string]string{"notes.txt": "x"})
	}
	c, problems := Load(dir, Options{})
	if len(c.APIs()) != maxAPIs || c.APIs()[0].Name != "m0000" || c.API("m1000") != nil {
		t.Fatalf("%d APIs, problems:\n%.500s", len(c.APIs()), problems)
	}
	if text := problems.String(); len(problems.Errors()) != 4 || len(problems.Warnings()) != 20 || !strings.Contains(text, "1003 folders with a config.json; want at most 1000") || !strings.Contains(text, "apis/m1001: one folder more than 1000") {
		t.Errorf("problems:\n%s", text)
	}
	if len(c.ListHolders(mustHost(t, "h999.example.com"))) != 1 || len(c.ListHolders(mustHost(t, "h1000.example.com"))) != 0 {
		t.Error("the wrong hosts are open")
	}
	if !c.MayHold(mustHost(t, "h1002.example.com")) || c.MayHold(mustHost(t, "elsewhere.example.com")) {
		t.Error("YOLO_MODE would open a host of an API that is refused, or none at all")
	}
	folder(t, dir, "aaa", simple(5000, "sk_live_other"))
	c, _ = Load(dir, Options{Previous: c})
	if c.API("m0999") == nil || c.API("aaa") != nil || len(c.APIs()) != maxAPIs {
		t.Error("a new folder took the place of an API in force")
	}
}

// TestUnreadFolders: when there are more folders than are read, YOLO_MODE opens no host at all.
// Promise: configuration-fails-closed
func TestUnreadFolders(t *testing.T) {
	dir := t.TempDir()
	for i := range maxAPIs + maxSurplus + 1 {
		folder(t, dir, fmt.Sprintf("m%04d", i), simple(i, fmt.Sprintf("sk_live_%08d", i)))
	}
	c, problems := Load(dir, Options{})
	if len(c.APIs()) != maxAPIs || !c.MayHold(mustHost(t, "elsewhere.example.com")) || len(problems) > maxReported+1 {
		t.Errorf("%d APIs, %d problems", len(c.APIs()), len(problems))
	}
}

// TestBounds: an API over a bound is refused with the bound named; the API beside it is loaded.
// Promise: configuration-fails-closed
func TestBounds(t *testing.T) {
	repeat := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return strings.TrimPrefix(b.String(), ",")
	}
	config := func(text string) map[string]string {
		return map[string]string{"config.json": `{"description":"x",` + text + `}`}
	}
	big := strings.Repeat("x", maxSecretFile)
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"domains", config(`"domains":[` + repeat(1001, `,"h%d.test"`) + `]`), "domains: 1001 entries; want at most 1000"},
		{"long hosts", config(`"domains":[` + repeat(600, `,"`+strings.Repeat(strings.Repeat("a", 60)+".", 3)+`h%d.test"`) + `]`), "600 host names in addition to"},
		{"ports", config(`"domains":[` + repeat(33, `,"x.test:1%03d"`) + `]`), "33 ports in addition to 0 of other APIs; want at most 32"},
		{"methods", config(`"domains":["x.test"],"restricted_methods":[` + repeat(101, `,"M%d"`) + `]`), "restricted_methods: 101 entries; want at most 100"},
		{"ranges", config(`"domains":["x.test"],"allow_private":[` + repeat(101, `,"10.0.%d.0/24"`) + `]`), "allow_private: 101 entries; want at most 100"},
		{"surfaces", config(`"domains":["x.test"],"credentials":{"TOKEN_X":{"value":"sk_live_12345","in":[` + repeat(101, `,"body:%d"`) + `]}}`), "in: 101 entries; want at most 100"},
		{"credentials", config(`"domains":["x.test"],"credentials":{` + repeat(501, `,"T%05d":"sk_live_x"`) + `}`), "credentials: 501 credentials; want at most 500"},
		{"unknown fields", config(`"domains":["x.test"],` + repeat(20000, `,"k%d":1`)), "more mistakes"},
		{"files", func() map[string]string {
			f := config(`"domains":["x.test"],"credentials":{` + repeat(70, `,"T%05d":{"file":"f"}`) + `}`)
			f["f"] = big
			return f
		}(), "together exceed 4 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			folder(t, dir, "bad", c.files)
			folder(t, dir, "good", simple(1, "sk_live_abcdef"))
			cat, problems := Load(dir, Options{})
			if cat.API("bad") != nil || cat.API("good") == nil {
				t.Errorf("bad is loaded: %v, good: %v", cat.API("bad") != nil, cat.API("good") != nil)
			}
			if !strings.Contains(problems.String(), c.want) || len(problems) > 100+2 {
				t.Errorf("want %q among %d problems:\n%.300s", c.want, len(problems), problems)
			}
			if strings.HasPrefix(c.name, "domains") && !cat.MayHold(mustHost(t, "h1000.test")) {
				t.Error("a host of the broken API is open to YOLO_MODE")
			}
		})
	}
}

// TestErrorBehindWarnings: warnings do not push out the error that keeps an API away.
func TestErrorBehindWarnings(t *testing.T) {
	dir := t.TempDir()
	domains := `"x.test"` + strings.Repeat(`,"x.test"`, 200)
	folder(t, dir, "bad", map[string]string{"config.json": `{"domains":[` + domains + `],"credentials":{"TOKEN_X":"short"}}`})
	c, problems := Load(dir, Options{})
	if c.API("bad") != nil || len(problems.Errors()) != 1 || !c.MayHold(mustHost(t, "x.test")) {
		t.Errorf("loaded: %v, problems %d", c.API("bad") != nil, len(problems))
	}
}

// TestManyHosts: all hosts together fit the interpreter's command line; an API that does not fit is refused, and those
// that are in force stay.
// Promise: configuration-fails-closed
func TestManyHosts(t *testing.T) {
	dir := t.TempDir()
	hosts := func(api string) map[string]string {
		var b strings.Builder
		for i := range 900 {
			fmt.Fprintf(&b, `,"%s%d.test"`, api, i)
		}
		return map[string]string{"config.json": `{"description":"x","domains":[` + b.String()[1:] + `]}`}
	}
	folder(t, dir, "b", hosts("b"))
	folder(t, dir, "c", hosts("c"))
	c, problems := Load(dir, Options{})
	if len(c.APIs()) != 2 || len(problems) != 0 {
		t.Fatalf("%d APIs\n%s", len(c.APIs()), problems)
	}
	folder(t, dir, "a", hosts("a"))
	c, problems = Load(dir, Options{Previous: c})
	if c.API("a") != nil || c.API("b") == nil || c.API("c") == nil || !strings.Contains(problems.String(), "apis/a/config.json: domains: 900 host names in addition to 1800 of other APIs; want at most 2000") {
		t.Errorf("%d APIs\n%s", len(c.APIs()), problems)
	}
}

// TestTotalBytes: what one load reads is bounded; APIs in force come first.
// Promise: configuration-fails-closed
func TestTotalBytes(t *testing.T) {
	ca, err := testca.New("test")
	if err != nil {
		t.Fatal(err)
	}
	certificate := string(ca.PEM())
	dir := t.TempDir()
	with := func(i int) map[string]string {
		f := simple(i, fmt.Sprintf("sk_live_%08d", i))
		f["config.json"] = strings.Replace(f["config.json"], "{", `{"ca_file": "ca.pem", `, 1)
		f["ca.pem"] = certificate + strings.Repeat("\n", maxCAs-len(certificate))
		return f
	}
	const most = maxBytes/maxCAs - 1 // there are config.json too
	for i := range most - 3 {
		folder(t, dir, fmt.Sprintf("m%03d", i), with(i))
	}
	c, problems := Load(dir, Options{})
	if len(c.APIs()) != most-3 {
		t.Fatalf("%d APIs\n%.300s", len(c.APIs()), problems)
	}
	for i := range 6 {
		folder(t, dir, fmt.Sprintf("a%03d", i), with(1000+i))
	}
	c, problems = Load(dir, Options{Previous: c})
	if c.API("m059") == nil || c.API("a005") != nil || !strings.Contains(problems.String(), "together exceed 64 MiB") {
		t.Errorf("%d APIs\n%.300s", len(c.APIs()), problems)
	}
}

// TestTotalDocuments: types.d.ts and operations.jsonl of all APIs are bounded by themselves, before they are read.
func TestTotalDocuments(t *testing.T) {
	dir := t.TempDir()
	for i := range maxDocuments/maxDocument + 1 {
		name := fmt.Sprintf("m%02d", i)
		folder(t, dir, name, simple(i, fmt.Sprintf("sk_live_%08d", i)))
		path := filepath.Join(dir, name, "types.d.ts")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, maxDocument); err != nil { // NUL, which is refused at the first byte
			t.Fatal(err)
		}
	}
	_, problems := Load(dir, Options{})
	if n := strings.Count(problems.String(), errDocuments.Error()); n != 1 || !strings.Contains(problems.String(), "m08/types.d.ts: "+errDocuments.Error()) {
		t.Errorf("%d files are too many\n%s", n, problems)
	}
}

// TestLinear: a load takes time in proportion to what it reads, first and again, whatever that is.
// Promise: configuration-fails-closed
func TestLinear(t *testing.T) {
	apis := func(types string, value func(i int) string, prefix string) func(n int) func() {
		return func(n int) func() {
			dir := t.TempDir()
			for i := range n {
				f := simple(i, value(i))
				if types != "" {
					f["types.d.ts"] = strings.Repeat(types, 8<<10/len(types))
				}
				folder(t, dir, fmt.Sprintf("%s%04d", prefix, i), f)
			}
			return func() {
				c, _ := Load(dir, Options{})
				Load(dir, Options{Previous: c})
			}
		}
	}
	same := func(int) string { return "sk_live_the_same" }
	xs := func(i int) string { return strings.Repeat("x", 60) + fmt.Sprintf("%06d", i) }
	token := func(i int) string { return fmt.Sprintf("TOKEN_%d_X", (i+1)%50) }
	shown := func(i int) string { return fmt.Sprintf("xxxxxxxx%0*d", i%50, 0) }
	for name, input := range map[string]func(n int) func(){
		"8 KiB of x and credentials of x":  apis("x", xs, "a"),
		"credentials that types show":      apis("xxxxxxxx0", shown, "a"),
		"the same credential":              apis("", same, "a"),
		"credentials that are token names": apis("", token, "a"),
		"one token name":                   oneName(t),
		"one host":                         oneHost(t),
		"placeholders":                     placeholders(t, "pre_%s_x"),
		"misleading placeholders":          placeholders(t, "TOKEN_X_%s"),
		"sources of sources":               sources(t),
	} {
		t.Run(name, func(t *testing.T) { costtest.RequireLinear(t, 100, input) })
	}
}

// oneName are APIs that all have the same token name.
func oneName(t *testing.T) func(n int) func() {
	return func(n int) func() {
		dir := t.TempDir()
		for i := range n {
			folder(t, dir, fmt.Sprintf("a%04d", i), map[string]string{"config.json": fmt.Sprintf(`{"description":"x","domains":["h%d.test"],"credentials":{"TOKEN_X":"sk_live_%08d"}}`, i, i)})
		}
		return func() { Load(dir, Options{}) }
	}
}

// placeholders creates APIs with placeholders of this form, and one API whose token name the form may contain.
func placeholders(t *testing.T, form string) func(n int) func() {
	return func(n int) func() {
		dir := t.TempDir()
		folder(t, dir, "x", map[string]string{"config.json": `{"description":"x","domains":["x.test"],"credentials":{"TOKEN_X":"sk_live_of_x"}}`})
		for i := range n {
			var list []string
			for j := range 20 {
				name := fmt.Sprintf("T%04d_%02d", i, j)
				list = append(list, fmt.Sprintf(`%q:{"value":"sk_live_%04d_%02d","placeholder":%q}`, name, i, j, fmt.Sprintf(form, name)))
			}
			folder(t, dir, fmt.Sprintf("a%04d", i), map[string]string{"config.json": fmt.Sprintf(`{"description":"x","domains":["h%d.test"],"credentials":{%s}}`, i, strings.Join(list, ","))})
		}
		return func() { Load(dir, Options{}) }
	}
}

// sources creates an API with pairs of credentials. Fetching a credential of one pair needs both credentials of the
// previous pair.
func sources(t *testing.T) func(n int) func() {
	return func(n int) func() {
		text := `{"description":"x","domains":["vault.test"],"credentials":{"T_0_0":"sk_live_00","T_0_1":"sk_live_01"`
		for i := range n / 4 { // RequireLinear goes to 4*n, and config.json has room for 100 pairs
			for j := range 2 {
				text += fmt.Sprintf(`,"T_%d_%d":{"fetch":{"url":"https://vault.test/v1","headers":{"X-Token":"T_%d_0 T_%d_1"},"json":"/data"}}`, i+1, j, i, i)
			}
		}
		dir := t.TempDir()
		folder(t, dir, "a", map[string]string{"config.json": text + "}}"})
		return func() {
			if _, problems := Load(dir, Options{}); len(problems.Errors()) > 0 {
				t.Error(problems)
			}
		}
	}
}

// oneHost are APIs that all have the same hosts.
func oneHost(t *testing.T) func(n int) func() {
	var domains strings.Builder
	for i := range 300 {
		fmt.Fprintf(&domains, `,"h%d.test"`, i)
	}
	return func(n int) func() {
		dir := t.TempDir()
		for i := range n {
			folder(t, dir, fmt.Sprintf("a%04d", i), map[string]string{"config.json": `{"description":"x","domains":[` + domains.String()[1:] + `]}`})
		}
		return func() { Load(dir, Options{}) }
	}
}

// TestLinearConfig: one config.json takes time in proportion to its size.
// Promise: configuration-fails-closed
func TestLinearConfig(t *testing.T) {
	for name, c := range map[string][3]string{
		"domains":           {`{"domains":["a.test"`, `,"h%d.a"`, `]}`},
		"one domain":        {`{"domains":["a.test"`, `,"a.test"`, `]}`},
		"broken domains":    {`{"domains":["a.test"`, `,"h%d/"`, `]}`},
		"methods":           {`{"domains":["a.test"],"restricted_methods":["GET"`, `,"M%d"`, `]}`},
		"unknown fields":    {`{"domains":["a.test"]`, `,"k%d":1`, `}`},
		"one field":         {`{"domains":["a.test"]`, `,"active":true`, `}`},
		"credentials":       {`{"domains":["a.test"],"credentials":{"AAAAA":"aaaaaaaa1"`, `,"T%05d":"aaaaaaaa%[1]d"`, `}}`},
		"short credentials": {`{"domains":["a.test"],"credentials":{"AAAAA":"aaaaaaaa1"`, `,"T%05d":"a"`, `}}`},
		"surfaces":          {`{"domains":["a.test"],"credentials":{"AAAAA":{"value":"aaaaaaaa1","in":["header"`, `,"body:%d"`, `]}}}`},
		"brackets":          {`{"x":`, `[`, ``},
		"line feeds":        {`{"x":`, "\n", `1}`},
	} {
		t.Run(name, func(t *testing.T) {
			costtest.RequireLinear(t, 60<<10, func(n int) func() {
				var b strings.Builder
				b.WriteString(c[0])
				for i := 0; b.Len() < n; i++ {
					if strings.Contains(c[1], "%") {
						fmt.Fprintf(&b, c[1], i)
					} else {
						b.WriteString(c[1])
					}
				}
				b.WriteString(c[2])
				dir := t.TempDir()
				folder(t, dir, "a", map[string]string{"config.json": b.String()})
				return func() { Load(dir, Options{}) }
			})
		})
	}
}

// TestDictionary: it finds what strings.Contains finds.
func TestDictionary(t *testing.T) {
	check := func(words []string, text string) {
		t.Helper()
		found := map[string]bool{}
		newDictionary(words).newSearch().scanText(text, func(i int) {
			if found[words[i]] {
				t.Errorf("%q found twice", words[i])
			}
			found[words[i]] = true
		})
		for _, w := range words {
			if want := w != "" && strings.Contains(text, w); found[w] != want {
				t.Errorf("%q in %q: %v, want %v", w, text, found[w], want)
			}
		}
	}
	words := []string{"", "a", "ab", "bab", "bc", "bca", "c", "caa", "abab", "abab", "aaaa", "\x00", "é"}
	for n := range 3 * 3 * 3 * 3 * 3 * 3 * 3 {
		var b strings.Builder
		for i, m := 0, n; i < 7; i, m = i+1, m/3 {
			b.WriteByte("abc"[m%3])
		}
		check(words, b.String())
	}
	check(words, "x\x00é")
	check(words, "")
}
