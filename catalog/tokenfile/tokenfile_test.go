package tokenfile

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"
)

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TestTenants reads a tokens file, and asks who a token is.
// Promise: tenant-tokens
func TestTenants(t *testing.T) {
	const alice, bob = "alice-token-0123456789", "bob-token-0123456789"
	list, problems := Parse([]byte(`{"tenants": {
		"alice": {"tokens": ["`+hashOf(alice)+`"], "apis": ["stripe"], "skills": ["report-*"], "runs": 2, "waiting": 3, "timeout": "30s"},
		"bob": {"tokens": ["`+bob+`"], "apis": ["*"]},
		"carol": {"logins": ["carol@example.com", "team"], "apis": ["*"]}}}`), "tenants.json")
	if problems != nil || len(list) != 3 || strings.Join(list[2].Logins, " ") != "carol@example.com team" || list[2].Hashes != nil {
		t.Fatalf("%v %v", list, problems)
	}
	a, b := list[0], list[1]
	if a.Name != "alice" || !a.CanUseAPI("stripe") || a.CanUseAPI("github") || !b.CanUseAPI("github") {
		t.Errorf("%+v %+v", a, b)
	}
	if !a.CanUseSkill("report-daily") || a.CanUseSkill("secret") || b.CanUseSkill("report-daily") {
		t.Error("shared skills")
	}
	if a.Runs != 2 || a.Waiting != 3 || a.Timeout != 30*time.Second || b.Runs != 0 {
		t.Errorf("%+v %+v", a, b)
	}
	for token, want := range map[string][2]bool{alice: {true, false}, bob: {false, true}, "": {}, alice + "x": {}, hashOf(alice): {}} {
		sum := sha256.Sum256([]byte(token))
		if got := [2]bool{a.HasToken(sum), b.HasToken(sum)}; got != want {
			t.Errorf("%q is %v, want %v", token, got, want)
		}
	}
}

// TestMistakes: each mistake is told with where it is and what is right, and none shows a token.
// Promise: tenant-tokens
func TestMistakes(t *testing.T) {
	const token = "hunter2-hunter2-hunter2"
	one := func(rest string) string {
		return `{"tenants": {"alice": {"tokens": ["` + token + `"], "apis": ["stripe"]` + rest + `}}}`
	}
	for text, want := range map[string]string{
		``:                           "f: line 1, column 1: an empty file; want an object",
		`[]`:                         "f: a list; want an object",
		`{}`:                         "f: tenants: missing; want an object",
		`{"tenant": {"a": {}}}`:      `f: tenant: unknown field on line 1; did you mean "tenants"?`,
		`{"tenants": {}}`:            "f: tenants: an object without any tenant; want",
		`{"tenants": {"Alice": {}}}`: "f: tenants (line 1): a name that no tenant can have; want 1 to 32",
		"{\"tenants\": {\n\"" + token + "-as-a-name-of-a-tenant\": {}}}": "f: tenants (line 2): a name that no tenant can have",
		one(`, "apis": ["x"]`):                                "f: tenants.alice.apis: the same key on lines 1 and 1; want each key once",
		one(`, "runs": 0`):                                    "f: tenants.alice.runs: 0; want a whole number from 1 to 1000",
		one(`, "waiting": "3"`):                               "f: tenants.alice.waiting: a string; want a whole number, without quotes",
		one(`, "timeout": "soon"`):                            "f: tenants.alice.timeout: not a duration; want",
		one(`, "skills": ["a["]`):                             "f: tenants.alice.skills[0]: a bracket that is not closed; want",
		one(`, "skill": ["a"]`):                               `f: tenants.alice.skill: unknown field on line 1; did you mean "skills"?`,
		one(`, "` + token + `": 1`):                           "f: tenants.alice: unknown field on line 1; want one of tokens, logins, apis, skills, folders, runs, waiting, timeout",
		`{"tenants": {"a": {"logins": [], "apis": ["x"]}}}`:   "f: tenants.a.logins: an empty list; want at least one",
		`{"tenants": {"a": {"logins": [""], "apis": ["x"]}}}`: "f: tenants.a.logins[0]: 0 bytes; want 1 to 255 bytes",
		`{"tenants": {"a": {"logins": ["u"], "apis": ["x"]}, "b": {"logins": ["v", "u"], "apis": ["x"]}}}`:                            "f: tenants.b.logins[1]: a login that a has already; want each login once",
		`{"tenants": {"a": {"tokens": [], "apis": ["x"]}}}`:                                                                           "f: tenants.a.tokens: an empty list; want at least one",
		`{"tenants": {"a": {"token": ["` + token + `"], "apis": ["x"]}}}`:                                                             `did you mean "tokens"?`,
		`{"tenants": {"a": {"tokens": ["` + token + `"]}}}`:                                                                           "f: tenants.a.apis: missing; want the names of APIs",
		`{"tenants": {"a": {"tokens": ["` + token + `"], "apis": []}}}`:                                                               "f: tenants.a.apis: an empty list; want the names of APIs",
		`{"tenants": {"a": {"tokens": ["` + token + `"], "apis": ["*", "x"]}}}`:                                                       `f: tenants.a.apis: "*" among others; want`,
		`{"tenants": {"a": {"tokens": ["` + token + `"], "apis": ["x", "x"]}}}`:                                                       "f: tenants.a.apis[1]: an API that is there already; want each once",
		`{"tenants": {"a": {"tokens": ["short"], "apis": ["x"]}}}`:                                                                    "f: tenants.a.tokens[0]: a token that is too short",
		`{"tenants": {"a": {"tokens": ["sha256:abc"], "apis": ["x"]}}}`:                                                               "f: tenants.a.tokens[0]: a hash that is not SHA-256; want 64 hexadecimal digits",
		`{"tenants": {"a": {"tokens": "` + token + `", "apis": ["x"]}}}`:                                                              "f: tenants.a.tokens: a string; want a list",
		`{"tenants": {"a": {"tokens": ["` + token + `"], "apis": ["x"]}, "b": {"tokens": ["` + hashOf(token) + `"], "apis": ["x"]}}}`: "f: tenants.b.tokens[0]: a token that a has already; want each token once",
		`{"tenants": {"a": {"tokens": ["` + token + `"], "apis": ["x"]}, "a": {"tokens": ["` + token + `"], "apis": ["*"]}}}`:         "f: tenants.a: the same key on lines 1 and 1; want each key once",
	} {
		list, problems := Parse([]byte(text), "f")
		if list != nil || !strings.Contains(problems.String(), want) {
			t.Errorf("%s\n gives %v %s\n want  %s", text, list, problems, want)
		}
		if strings.Contains(problems.String(), "hunter2") {
			t.Errorf("%s: shows the token: %s", text, problems)
		}
	}
	// All of them at once.
	_, problems := Parse([]byte(`{"tenants": {"a": {"tokens": ["x"], "apis": []}, "b": {"runs": -1}}}`), "f")
	if len(problems) != 4 {
		t.Errorf("%d problems, want 4:\n%s", len(problems), problems)
	}
}

func TestIsUnprintable(t *testing.T) {
	for r, want := range map[rune]bool{0: true, ' ': true, '!': false, '~': false, 0x7f: true, 0x80: true, 'ä': true} {
		if got := isUnprintable(r); got != want {
			t.Errorf("%U: %t", r, got)
		}
	}
}
