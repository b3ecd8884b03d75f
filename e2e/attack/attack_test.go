package attack

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(world.Main(m)) }

// TestSuite mounts every attack and prints the table. CODEFORGE_ATTACK limits it to the attacks whose section and name
// match; "." is all of them, including those that IsMountedIn leaves to embedded mode, as testkit.IsThorough does.
// Promise: least-privilege (C), default-deny (A), exact-approvals (P), no-oracle (B), leaked-values-stop-here (A), canaries (P), never-printed (*), no-other-way-out (C), nothing-stays (F), bounded-work (E), memory-limits (F), hostile-skills (G), terminal-shows (P), tenant-sessions (T), console-sessions (E), server-confinement (S), server-limits (S), dry-runs-send-no-writes (P)
func TestSuite(t *testing.T) {
	asked := os.Getenv("CODEFORGE_ATTACK")
	only := regexp.MustCompile(asked)
	var ordinary, open, bare, inside, pythons, several, absent []Attack
	var foreign []string
	left, matches := 0, 0
	for _, a := range Suite() {
		if !only.MatchString(a.Section + "/" + a.Name) {
			continue
		}
		matches++
		switch {
		case world.CurrentMode() == world.Kubernetes && a.NoPod != "":
			absent = append(absent, a)
		case len(a.Only) > 0 && !slices.Contains(a.Only, world.CurrentMode()):
		case asked == "" && !testkit.IsThorough() && !a.IsMountedIn(world.CurrentMode()):
			left++
		case a.Root && os.Geteuid() != 0:
			foreign = append(foreign, a.Name)
		case a.Language == python:
			pythons = append(pythons, a)
		case a.Tenants:
			several = append(several, a)
		case a.YOLO:
			open = append(open, a)
		case a.Unredacted:
			bare = append(bare, a)
		case a.Escaped, a.Token:
			inside = append(inside, a)
		default:
			ordinary = append(ordinary, a)
		}
	}
	if matches == 0 {
		t.Fatalf("CODEFORGE_ATTACK=%q matches no attack; a name begins with its section, as in %q", asked, "F/memory of the proxy")
	}
	if len(foreign) > 0 && testkit.NoSkip() {
		t.Errorf("only root can mount %q", foreign)
	}
	var outcomes []Outcome
	var missing []Attack // what no world was there for
	mount := func(name string, cfg world.Config, attacks []Attack) {
		var of []Outcome
		if !t.Run(name, func(t *testing.T) { of = siege(t, cfg, attacks) }) && of == nil {
			missing = append(missing, attacks...)
		}
		for _, o := range of {
			if cfg.User == world.Ordinary {
				o.Attack.Name += ordinaryUser
			}
			outcomes = append(outcomes, o)
		}
	}
	both := world.CurrentMode() == world.Embedded && os.Geteuid() == 0
	token := map[string]string{"MCP_AUTH_TOKEN": Token}
	mount("catalog hosts only", world.Config{Env: map[string]string{"REDACTING_STRINGS": redactMe, "DEBUG_MODE": "true"}}, ordinary)
	// The kernel alone confines Python, so its attacks are mounted as root and as an ordinary user if the modes can differ.
	asOrdinary := func(attacks []Attack) []Attack {
		return slices.DeleteFunc(slices.Clone(attacks), func(a Attack) bool {
			return a.Root && a.Language == python || asked == "" && !testkit.IsThorough() && !a.needsBothUsers()
		})
	}
	mount("Python", world.Config{}, pythons)
	if both {
		mount("Python in the embedded mode of an ordinary user", world.Config{User: world.Ordinary}, asOrdinary(pythons))
	}
	mount("YOLO", world.Config{Env: map[string]string{"YOLO_MODE": "true", "REDACTING_STRINGS": redactMe, "DEBUG_MODE": "true"}, TrustCA: true}, open)
	mount("nothing redacted", world.Config{}, bare)
	if len(several) > 0 {
		path, err := TokensFile()
		testkit.Must(t, err)
		defer os.RemoveAll(filepath.Dir(path))
		mount("tenants", world.Config{Env: map[string]string{"MCP_AUTH_TOKEN": Token, "MCP_TOKENS_FILE": path}}, several)
	}
	mount("escaped from the interpreter", world.Config{Env: token, Interpreter: "intruder"}, inside)
	if both {
		mount("escaped in the embedded mode of an ordinary user", world.Config{User: world.Ordinary, Env: token, Interpreter: "intruder"}, asOrdinary(inside))
	}
	printTable(outcomes, absent)
	if left > 0 {
		t.Logf("%d attacks are left to embedded mode; CODEFORGE_ATTACK=. mounts them here too", left)
	}
	broken := t.Failed() && len(missing) == 0 // what a world leaves behind, for instance
	again := missing
	for _, o := range outcomes {
		if !o.Held {
			again = append(again, o.Attack)
			broken = broken || o.Attack.Section == "*"
			t.Errorf("not held: %s %s: expected %s, seen %s\n%s", o.Attack.Section, o.Attack.Name, o.Attack.Expected, o.Seen, o.Detail)
		}
	}
	if len(again) > 0 && !broken {
		var names []string
		for _, a := range again {
			names = append(names, regexp.QuoteMeta(a.Section+"/"+strings.TrimSuffix(a.Name, ordinaryUser)))
		}
		t.Logf("once more: ^(%s)$", strings.Join(names, "|")) // make/test.sh mounts only these again
	}
}

// ordinaryUser is added to the names of attacks that are mounted as root and as an ordinary user.
const ordinaryUser = " (ordinary user)"

// siege mounts attacks on one world, then searches everything the world left behind.
func siege(t *testing.T, cfg world.Config, attacks []Attack) []Outcome {
	t.Helper()
	if len(attacks) == 0 {
		return nil
	}
	began := time.Now()
	folder, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SANDBOX_PROGRAMS": folder}
	maps.Copy(env, cfg.Env)
	cfg.Slots, cfg.Change, cfg.Env = width, withServers, env
	w := world.Start(t, cfg)
	if attacks[0].Language == python {
		w.MustPython(t, "") // or the test is skipped
	}
	t.Logf("started after %s", time.Since(began).Round(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	outcomes := make([]Outcome, len(attacks))
	seats := make(chan struct{}, width)
	var wg sync.WaitGroup
	var held map[int]Outcome
	if !testkit.IsThorough() {
		held = mountShared(ctx, w, attacks)
		t.Logf("%d held in shared interpreters until %s", len(held), time.Since(began).Round(time.Second))
	}
	for _, chain := range chains(attacks) {
		if o, is := held[chain[0]]; is { // attacks that share an interpreter have no chain
			outcomes[chain[0]] = o
			continue
		}
		seats <- struct{}{}
		wg.Go(func() {
			for _, i := range chain {
				outcomes[i] = mounted(ctx, w, attacks[i])
			}
			<-seats
		})
	}
	wg.Wait()
	t.Logf("side by side until %s", time.Since(began).Round(time.Second))
	for i, a := range attacks {
		if a.Alone {
			outcomes[i] = mounted(ctx, w, a)
		}
	}
	t.Logf("one by one until %s", time.Since(began).Round(time.Second))
	if dir := os.Getenv("CODEFORGE_ATTACK_OUT"); dir != "" {
		_ = os.WriteFile(filepath.Join(dir, "attack-"+strings.ReplaceAll(filepath.Base(t.Name()), " ", "-")+".log"), []byte(w.Logs()), 0o600)
	}
	return append(outcomes, Aftermath(ctx, w)...)
}

// chains lists the attacks that may run at the same time, each with those that must follow it. What takes long comes
// first, so that nothing is left when the others are done.
func chains(attacks []Attack) [][]int {
	var all [][]int
	at := map[string]int{}
	for i, a := range attacks {
		n, follows := at[a.Chain]
		switch {
		case a.Alone:
		case follows:
			all[n] = append(all[n], i)
		default:
			if a.Chain != "" {
				at[a.Chain] = len(all)
			}
			all = append(all, []int{i})
		}
	}
	sort.SliceStable(all, func(i, j int) bool {
		if a, b := len(all[i]), len(all[j]); a != b {
			return a > b
		}
		return attacks[all[i][0]].Seconds > attacks[all[j][0]].Seconds
	})
	return all
}

// mounted mounts one attack. If it did not hold, what the parts logged meanwhile is added to its detail: the world ends
// before anybody can ask it. With CODEFORGE_ATTACK_V the outcome is printed at once.
func mounted(ctx context.Context, w *world.World, a Attack) Outcome {
	began := time.Now()
	o := Run(ctx, w, a)
	if !o.Held {
		o.Detail += "logged meanwhile:\n" + loggedSince(w.Logs(), began, o.Detail)
	}
	if os.Getenv("CODEFORGE_ATTACK_V") != "" {
		fmt.Fprintf(os.Stderr, "%s %v %s %s: %s\n", o.Took.Round(time.Millisecond), o.Held, a.Section, a.Name, clip(o.Seen, 200))
	}
	return o
}

// stamp is the time at which a line was logged. It sorts as text.
var stamp = regexp.MustCompile(`\[(\d{4}-\d\d-\d\dT[\d:.]+Z)\]`)

// ofRun is the run that a line is about.
var ofRun = regexp.MustCompile(`\brun=(\w+)`)

// loggedSince is what was logged at or after a time: the last 100 lines about a run that detail names, or about none.
func loggedSince(log string, t time.Time, detail string) string {
	from := t.UTC().Format("2006-01-02T15:04:05.000Z")
	var lines []string
	for line := range strings.Lines(log) {
		at, run := stamp.FindStringSubmatch(line), ofRun.FindStringSubmatch(line)
		if at != nil && at[1] >= from && !strings.Contains(line, "[debug]") && (run == nil || strings.Contains(detail, run[1])) {
			lines = append(lines, clip(strings.TrimRight(line, "\n"), 400))
		}
	}
	return strings.Join(lines[max(0, len(lines)-100):], "\n")
}

// printTable prints the table of a suite, and writes it to CODEFORGE_ATTACK_OUT if that is set.
func printTable(outcomes []Outcome, absent []Attack) {
	text := renderTable(world.CurrentMode(), outcomes, absent)
	fmt.Println(text)
	if dir := os.Getenv("CODEFORGE_ATTACK_OUT"); dir != "" {
		_ = os.WriteFile(filepath.Join(dir, "attack-"+string(world.CurrentMode())+".md"), []byte(text+"\n"), 0o644) //nolint:gosec // a report
	}
}

// renderTable has a row for each outcome, sorted by section, a row for each attack that does not exist in this mode, and
// a last line with the counts of each section.
func renderTable(mode world.Mode, outcomes []Outcome, absent []Attack) string {
	sort.SliceStable(outcomes, func(i, j int) bool { return outcomes[i].Attack.Section < outcomes[j].Attack.Section })
	var b strings.Builder
	count, held := map[string]int{}, map[string]int{}
	fmt.Fprintf(&b, "| | attack | expected | seen | | modes |\n|---|---|---|---|---|---|\n")
	for _, o := range outcomes {
		verdict := "**NOT HELD**"
		count[o.Attack.Section]++
		if o.Held {
			verdict = "held"
			held[o.Attack.Section]++
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", o.Attack.Section, cell(o.Attack.Name), cell(o.Attack.Expected), cell(clip(o.Seen, 140)), verdict,
			or(o.Attack.WhyModesDiffer(), "they cannot differ"))
	}
	for _, a := range absent {
		fmt.Fprintf(&b, "| %s | %s | %s | | absent: %s | |\n", a.Section, cell(a.Name), cell(a.Expected), cell(a.NoPod))
	}
	fmt.Fprintf(&b, "\n%s mode: %d attacks, %d absent", mode, len(outcomes), len(absent))
	for _, s := range []string{"A", "B", "C", "D", "E", "F", "G", "M", "P", "S", "T", "*"} {
		fmt.Fprintf(&b, "; %s %d of %d held", s, held[s], count[s])
	}
	return b.String()
}

func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ").Replace(s)
}
