package attack

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

const sample = `// Attempts, in prose: with a colon.

// expected: refused
// seconds: 5

const shared = 1;

// name: {what} over {port}
// judge: refused("{code}")
// yolo: {open}
// each: what | code | open
//   a host      | host_unknown |  no
//   a \r\n host | bad_request  |  yes
// each: port = 80 443
await raw("{what}", {port: "{port}"});

// name: alone
// expected: nothing
// judge: both(verdicts(), unswapped("X", true))
// alone: yes
// apis: one two
// note: why
{
  out(1);
}
`

// TestFiles: a file is read as its README says.
func TestFiles(t *testing.T) {
	list, err := readFile("A", ".ts", sample)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range list {
		got = append(got, fmt.Sprintf("%s|%s|%s|%v|%d|%t|%t|%q",
			a.Section, a.Name, a.Expected, a.APIs, a.Seconds, a.YOLO, a.Alone, a.Code))
	}
	const shared = `// Attempts, in prose: with a colon.\n\n\nconst shared = 1;\n\n`
	want := []string{
		`A|a host over 80|refused|[]|5|false|false|"` + shared + `await raw(\"a host\", {port: \"80\"});"`,
		`A|a host over 443|refused|[]|5|false|false|"` + shared + `await raw(\"a host\", {port: \"443\"});"`,
		`A|a \r\n host over 80|refused|[]|5|true|false|"` + shared + `await raw(\"a \\r\\n host\", {port: \"80\"});"`,
		`A|a \r\n host over 443|refused|[]|5|true|false|"` + shared + `await raw(\"a \\r\\n host\", {port: \"443\"});"`,
		`A|alone|nothing|[one two]|5|false|true|"` + shared + `{\n  out(1);\n}"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, held := list[0].Judge(evidence(`{"status":403,"code":"host_unknown"}` + "\n")); !held {
		t.Error("the judge of the first row is another")
	}
	if _, held := list[2].Judge(evidence(`{"status":403,"code":"host_unknown"}` + "\n")); held {
		t.Error("the judge of the third row is another")
	}
}

// TestPythonFiles: a file in Python is read the same.
func TestPythonFiles(t *testing.T) {
	list, err := readFile("C", ".py", "# Prose.\n\n# expected: refused\n\nx = {}  # shared\n\n# name: {what}\n# judge: verdicts()\n# each: what = fork clone\nif x:\n    out(held=\"{what}\")  # 1 // 2\n# A comment.\n")
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	a := list[1]
	const code = "# Prose.\n\n\nx = {}  # shared\n\nif x:\n    out(held=\"clone\")  # 1 // 2\n# A comment."
	if a.Section != "C" || a.Name != "Python: clone" || a.Language != "python" || a.Code != code {
		t.Errorf("%+v", a)
	}
}

// TestPythonMisfires: an attack in Python that was wrong in itself was not mounted, and one that was refused was.
func TestPythonMisfires(t *testing.T) {
	for out, want := range map[string]bool{
		"Traceback (most recent call last):\n  File \"main.py\", line 1, in <module>\nNameError: name 'x' is not defined\n": true,
		"  File \"main.py\", line 1\nSyntaxError: invalid syntax\n":                                                         true,
		"Traceback (most recent call last):\nPermissionError: [Errno 1] Operation not permitted\n":                          false,
		`{"held": true, "seen": "fork: [Errno 1] Operation not permitted"}` + "\n":                                          false,
	} {
		if got := evidence(out).misfired(); (got != "") != want {
			t.Errorf("%q: %q", out, got)
		}
	}
}

// TestFilesRefused: a file with a mistake in it is not read as something else.
func TestFilesRefused(t *testing.T) {
	const good = "// name: a\n// expected: b\n// judge: refused()\nout(1);\n\n"
	const judged = "// name: a\n// expected: b\n// judge: "
	for name, text := range map[string]string{
		"no attack":                      "out(1);\n",
		"no expectation":                 "// name: a\n// judge: refused()\nout(1);\n",
		"no judge":                       "// name: a\n// expected: b\nout(1);\n",
		"an unknown field":               "// name: a\n// expects: b\n// judge: refused()\nout(1);\n",
		"an unknown field at first":      good + "// title: c\nout(2);\n",
		"a field twice":                  "// name: a\n// expected: b\n// expected: c\n// judge: refused()\nout(1);\n",
		"a field without a value":        "// name: a\n// expected:\n// judge: refused()\nout(1);\n",
		"a number that is none":          judged + "refused()\n// seconds: soon\nout(1);\n",
		"neither yes nor no":             judged + "refused()\n// alone: true\nout(1);\n",
		"too few cells":                  judged + "refused()\n// each: a | b\n//   x\nout(1);\n",
		"an unknown column":              "// name: {a}\n// expected: b\n// judge: refused()\nout(1);\n",
		"an unused column":               judged + "refused()\n// each: c = d\nout(1);\n",
		"a column in a template":         "// name: {c}\n// expected: b\n// judge: refused()\n// each: c = d\nout(`${c}`);\n",
		"defaults behind an attack":      good + "// expected: c\n\n// name: d\n// judge: refused()\nout(2);\n",
		"an unknown judge":               judged + "refuse()\nout(1);\n",
		"a judge that is not called":     judged + "refused\nout(1);\n",
		"a judge of the wrong argument":  judged + "refused(1)\nout(1);\n",
		"a judge of too few arguments":   judged + "unswapped(\"X\")\nout(1);\n",
		"a judge of too many arguments":  judged + "verdicts(1)\nout(1);\n",
		"a judge that is no expression":  judged + "refused(\nout(1);\n",
		"a judge that is not a judge":    judged + "\"refused\"\nout(1);\n",
		"a judge that is called in vain": judged + "stuck()\nout(1);\n",
	} {
		if list, err := readFile("A", ".ts", text); err == nil {
			t.Errorf("%s: read as %d attacks", name, len(list))
		}
	}
}

// TestFilesComplete: what other packages list, and the files name once more, is all there.
func TestFilesComplete(t *testing.T) {
	suite := Suite()
	named := func(name string) bool {
		return slices.ContainsFunc(suite, func(a Attack) bool { return a.Name == name })
	}
	for _, f := range canary.Forms() {
		for _, token := range []string{"HTTPBIN_TOKEN", "HTTPBIN_HARD"} {
			if !named("echo as " + f.Name + " of " + token) {
				t.Errorf("testdata/B/forms.ts has no %s of %s", f.Name, token)
			}
		}
	}
	for _, host := range upstream.ForbiddenNames() {
		addresses, _ := upstream.Embedded.Resolve(host, 0)
		i := slices.IndexFunc(suite, func(a Attack) bool { return a.Name == "name that resolves to "+addresses[0].String() })
		if i < 0 || !strings.Contains(suite[i].Code, "https://"+host+"/") {
			t.Errorf("testdata/A/addresses.ts has no %s, %s", host, addresses[0])
		}
	}
}

// TestModes verifies that each pattern of modesDiffer selects attacks, that no two select the same one, and that all
// attacks exist in embedded mode or name the modes in which they exist. Kubernetes leaves only attacks of inDocker to
// Docker, and mounts attacks by each reason why modes differ.
// Promise: checks-can-fail
func TestModes(t *testing.T) {
	mounted := map[world.Mode]int{}
	selected, inPods := make([]int, len(modesDiffer)), make([]int, len(modesDiffer))
	for _, a := range Suite() {
		name := a.Section + "/" + a.Name
		first := ""
		for i, d := range modesDiffer {
			if d.rows.MatchString(name) {
				selected[i]++
				if a.IsMountedIn(world.Kubernetes) {
					inPods[i]++
				}
				if first != "" {
					t.Errorf("%s: two reasons: %s; %s", name, first, d.why)
				}
				first = d.why
			}
		}
		for _, mode := range []world.Mode{world.Embedded, world.Docker, world.Kubernetes} {
			if a.IsMountedIn(mode) {
				mounted[mode]++
			}
			want := first != "" && (mode == world.Docker || !inDocker.MatchString(name))
			if len(a.Only) == 0 && mode != world.Embedded && a.IsMountedIn(mode) != want {
				t.Errorf("%s in %s mode: mounted %t, why modes differ: %q", name, mode, a.IsMountedIn(mode), first)
			}
		}
	}
	for i, n := range selected {
		t.Logf("%d attacks, in Kubernetes %d: %s", n, inPods[i], modesDiffer[i].why)
		if inPods[i] == 0 {
			t.Errorf("Kubernetes mounts no attack that matches %s", modesDiffer[i].rows)
		}
	}
	t.Logf("mounted: %v", mounted)
}
