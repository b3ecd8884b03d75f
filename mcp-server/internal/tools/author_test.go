package tools

import (
	"fmt"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
)

// TestWrote: beside other calls, a change is that of the code which names the file other than to import it.
func TestWrote(t *testing.T) {
	changes := []skill.SkillChange{{Name: "report", What: skill.New}}
	for code, row := range map[string]struct{ beside, alone bool }{
		`Deno.writeTextFileSync("/skills/report.ts", x)`:                                      {true, true},
		"const name = 'report';\nDeno.writeTextFileSync(`/skills/${name}.ts`, x)":             {true, true},
		"open('/skills/report.py', 'w').write(x)":                                             {true, true},
		"import { run } from '/skills/report.ts';\nawait run();":                              {false, true},
		"import { report } from './report.ts'; report(); // skills":                           {false, true},
		"const { run } = await import(\"/skills/report.ts\");":                                {false, true},
		"from skills import report\nreport.run()":                                             {false, true},
		"import skills.report":                                                                {false, true},
		"import { f } from '/skills/report.ts';\nDeno.writeTextFileSync('/skills/report.ts')": {true, true},
		`for (const n of names) Deno.writeTextFileSync("/skills/" + n, x)`:                    {false, true},
		`Deno.writeTextFileSync("/skills/reports.ts", x)`:                                     {false, true},
		`console.log("report")`:                                                               {false, false},
	} {
		if got := len(selectOwnChanges(code, false, changes)) == 1; got != row.beside {
			t.Errorf("%s beside others: %v", code, got)
		}
		if got := len(selectOwnChanges(code, true, changes)) == 1; got != row.alone {
			t.Errorf("%s alone: %v", code, got)
		}
	}
	python := []skill.SkillChange{{Name: "report.py", What: skill.New}}
	if got := selectOwnChanges("p = '/skills/report.py'", false, python); len(got) != 1 {
		t.Errorf("Python: %v", got)
	}
}

// TestWriters: calls that overlap are not alone, whichever began or ended first.
func TestWriters(t *testing.T) {
	var w writerCount
	said := func(end func() (bool, bool)) string {
		alone, last := end()
		return fmt.Sprint(alone, last)
	}
	one := w.beginCall()
	if got := said(one); got != "true true" {
		t.Errorf("alone: %s", got)
	}
	one = w.beginCall()
	two := w.beginCall()
	if a, b := said(two), said(one); a != "false false" || b != "false true" {
		t.Errorf("one within the other: %s, %s", a, b)
	}
	one, two = w.beginCall(), w.beginCall()
	if a, b := said(one), said(two); a != "false false" || b != "false true" {
		t.Errorf("one after the other: %s, %s", a, b)
	}
	if got := said(w.beginCall()); got != "true true" {
		t.Errorf("afterwards: %s", got)
	}
}
