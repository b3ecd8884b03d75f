package doctor

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

var (
	//go:embed attacks/prelude.ts
	prelude string
	//go:embed attacks/attacks.ts
	attacks string
)

// listAttacks lists the attacks on a target: those of attacks/attacks.ts, and those from outside the sandbox.
func listAttacks(t attackTarget) []attackCase {
	constants := fmt.Sprintf("const open = %t, host = %q, memory = %d;\n", t.open, t.host, t.memory)
	return slices.Concat(readAttacks(t, attacks, constants+prelude), endpointAttacks(t))
}

// readAttacks reads the attacks of a file, and leaves out those that this target does not allow. The prelude precedes
// the code of each.
func readAttacks(t attackTarget, text, prelude string) []attackCase {
	judges := map[string]func(mcpclient.Result) (string, bool){
		"": checkAllRefused, "module not loaded": checkModuleNotLoaded, "nothing read": checkNothingRead,
		"output bounded": checkOutputBounded,
		"timeout":        checkEndedBy(sandboxapi.Timeout), "oom": checkEndedBy(sandboxapi.OOM),
	}
	met := map[string]bool{"": true, "host": t.host != "", "memory": t.memory != 0, "closed": !t.open}
	var list []attackCase
	for _, block := range strings.Split(text, "\n// name: ")[1:] {
		name, code, _ := strings.Cut(block, "\n")
		fields := map[string]string{}
		for strings.HasPrefix(code, "// ") {
			var line string
			line, code, _ = strings.Cut(code, "\n")
			key, value, _ := strings.Cut(line[len("// "):], ": ")
			fields[key] = value
		}
		if !met[fields["needs"]] {
			continue
		}
		seconds, err := strconv.ParseFloat(fields["seconds"], 64)
		if err != nil { // the file does not set it
			seconds = 20
		}
		list = append(list, attackCase{
			name: name, expected: fields["expected"], code: prelude + code, seconds: seconds, judge: judges[fields["judge"]],
		})
	}
	return list
}

func endpointAttacks(t attackTarget) []attackCase {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	foreignHost := func(r *http.Request) { r.Host = "codeforge-doctor.invalid" }
	list := []attackCase{
		newForbiddenAttack("MCP endpoint: a foreign Host (DNS rebinding)", foreignHost),
		newForbiddenAttack("MCP endpoint: a web page's Origin", header("Origin", "https://codeforge-doctor.invalid")),
		newForbiddenAttack("MCP endpoint: a cross-site request", header("Sec-Fetch-Site", "cross-site")),
	}
	// Without a token the endpoint accepts this user, so there is no 401 to expect.
	if t.token.IsEmpty() {
		return list
	}
	for _, b := range []struct{ name, token string }{
		{"no bearer token", ""},
		{"a wrong bearer token", "codeforge-doctor"},
	} {
		do := func(ctx context.Context, t attackTarget) (string, bool) {
			status, err := sendInitialize(ctx, t, secret.New(b.token), func(*http.Request) {})
			return fmt.Sprint(status), err == nil && status == http.StatusUnauthorized
		}
		list = append(list, attackCase{name: "MCP endpoint: " + b.name, expected: "401", do: do})
	}
	return list
}
