package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// trick is text in JavaScript escapes that does something to a terminal, around a word that must be seen.
const trick = `\x1b]0;title\x07\x1b]52;c;cm0gLXJmCg==\x07\x1b[2J\x1b[8mSEEN\x1bP+q544e\x1b\\\u009b31m\u009d0;t\u009cgood\rbad\b\b\b\u202eevil\u2066\u200b\ufeff\u{e0041}\x0e\x7f\x05`

// terminals are attempts on whoever looks: text of code or of a skill that the command line prints to a terminal.
func terminals() []Attack {
	p := func(name, expected, noPod string, do func(context.Context, *world.World) (string, bool)) Attack {
		return Attack{Section: "P", Name: name, Expected: expected, NoPod: noPod, Chain: "skills", Do: func(ctx context.Context, w *world.World) (string, bool) {
			ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
			defer cancel()
			return do(ctx, w)
		}}
	}
	look := func(code, word string, args ...string) func(context.Context, *world.World) (string, bool) {
		return func(ctx context.Context, w *world.World) (string, bool) {
			out, err := w.Look(ctx, code, args...)
			return looked(out, word, err)
		}
	}
	const plant = "Deno.writeTextFileSync('/skills/planted.ts', `/** @description SEEN " + trick + " */\nexport const a = 1; // " + trick + "\n`)"
	skill := func(do func(context.Context, *world.World) (string, bool)) func(context.Context, *world.World) (string, bool) {
		return func(ctx context.Context, w *world.World) (string, bool) {
			defer clear(ctx, w)
			if _, err := w.Execute(ctx, plant); err != nil {
				return err.Error(), false
			}
			return do(ctx, w)
		}
	}
	const shown = "shown, not obeyed"
	return []Attack{
		p("on a terminal: what a run prints", shown, "", look("console.log(`"+trick+"`)", "SEEN", "run", "SCRIPT")),
		p("on a terminal: bytes that are no UTF-8", shown, "", look("Deno.stdout.writeSync(new Uint8Array([0x53, 0x45, 0x45, 0x4e, 0x9b, 0x32, 0x4a, 0x9d, 0x30, 0x3b, 0x74, 0x9c, 0xff]))", "SEEN", "run", "SCRIPT")),
		p("on a terminal: what a run that fails prints", shown, "", look("console.error(`"+trick+"`); throw new Error(`"+trick+"`)", "SEEN", "run", "SCRIPT")),
		p("on a terminal: a run's result as JSON", shown, "", look("console.log(`"+trick+"`)", "SEEN", "run", "--json", "SCRIPT")),
		p("on a terminal: a receipt", shown, "", look("await fetch(`https://httpbin.test/"+trick+"`).catch(() => {}); console.log('done')", "httpbin.test", "run", "--receipt", "SCRIPT")),
		journaled(p("on a terminal: the log of exchanges", shown, "", func(ctx context.Context, w *world.World) (string, bool) {
			if _, err := w.Execute(ctx, "await fetch(`https://httpbin.test/SEEN"+trick+"`).catch(() => {})"); err != nil {
				return err.Error(), false
			}
			return look("", "SEEN", "logs")(ctx, w)
		})),
		p("on a terminal: a skill's source", shown, noSkills, skill(look("", "SEEN", "skills", "show", "planted"))),
		p("on a terminal: the list of skills", shown, noSkills, skill(look("", "SEEN", "skills", "list"))),
		p("on a terminal: a name that is not there", shown, "", look("", "SEEN", "skills", "show", "\x1b]0;title\x07SEEN\u202e\u009b2J")),
		p("in a pipe: a skill's source", "byte for byte", noSkills, skill(func(ctx context.Context, w *world.World) (string, bool) {
			out, err := w.Pipe(ctx, "", "skills", "show", "planted")
			whole := err == nil && strings.Contains(out, "\x1b]52;c;cm0gLXJmCg==\x07\x1b[2J\x1b[8mSEEN\x1bP+q544e\x1b\\\u009b31m") && strings.Contains(out, "good\rbad\b\b\b\u202eevil\u2066\u200b\ufeff\U000e0041\x0e\x7f\x05")
			return fmt.Sprintf("%d bytes, whole: %v", len(out), whole), whole
		})),
	}
}

// journaled is for the modes whose `codeforge logs` is where the tests' command line runs.
func journaled(a Attack) Attack {
	a.Only = []world.Mode{world.Embedded, world.Kubernetes}
	return a
}

// looked judges what a terminal got: a word that had to be there, and nothing that a terminal obeys or hides.
func looked(out, word string, err error) (string, bool) {
	if err != nil {
		return err.Error(), false
	}
	if !strings.Contains(out, word) {
		return "not shown: " + clip(fmt.Sprintf("%q", out), 200), false
	}
	out = strings.NewReplacer("\r\n", "\n", "\r\x1b[K", "").Replace(out) // codeforge's own, where a run takes long
	for i, r := range out {
		bad := r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0xfeff || r >= 0x200b && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r > 0xe0000
		if bad || r == 0xfffd && !strings.HasPrefix(out[i:], "\uFFFD") {
			return fmt.Sprintf("the terminal got %U: %s", r, clip(fmt.Sprintf("%q", out), 200)), false
		}
	}
	return "shown", true
}
