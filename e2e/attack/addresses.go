package attack

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// addresses are names that lead to where no proxy may dial, and servers that are not who they claim to be.
func addresses() []Attack {
	var list []Attack
	for _, name := range upstream.ForbiddenNames() {
		addr, _ := upstream.Embedded.Resolve(name, 0)
		list = append(list, Attack{
			Section: "A", Name: fmt.Sprintf("name that resolves to %s", addr[0]), Expected: "refused at dial", Judge: undialled(name),
			Code: fmt.Sprintf(`await show(fetch("https://%s/anything?t=TRIAL", auth("FORBIDDEN_TOKEN")));`, name),
		})
	}
	for _, row := range []struct{ name, host string }{
		{"certificate of an unknown authority", upstream.BadCA}, {"certificate for another name", upstream.Wrong}, {"expired certificate", upstream.Expired},
	} {
		list = append(list, Attack{
			Section: "A", Name: "upstream with a " + row.name, Expected: "502, not a byte sent", Judge: unsent(row.host),
			Code: fmt.Sprintf(`await show(fetch("https://%s/anything?t=TRIAL", auth("CERTS_TOKEN")));`, row.host),
		})
	}
	return append(list,
		Attack{Section: "A", Name: "name that resolves elsewhere the second time", Expected: "never to loopback", Judge: undialled(upstream.Rebind),
			// A login is sent on a connection of its own, so that the name is asked for each time.
			Code: `for (let i = 0; i < 6; i++) await show(fetch("https://rebind.test/anything?t=TRIAL", { headers: { Authorization: "Negotiate YII" } }));`},
		Attack{Section: "A", Name: "domains that are public suffixes", Expected: "refused at load", Do: suffixes},
	)
}

// undialled: nothing came to a loopback address under that name, and the code was told that the address is refused.
func undialled(name string) Judge {
	return func(e *Evidence) (string, bool) {
		for _, w := range e.World.Upstream.Wires("") {
			host, err := netip.ParseAddrPort(w.Local)
			if err == nil && host.Addr().IsLoopback() {
				return "a connection arrived at " + w.Local, false
			}
		}
		for _, l := range e.lines() {
			if l.Code != "address_refused" && name != upstream.Rebind {
				return e.brief(), false
			}
		}
		refused := slices.ContainsFunc(e.lines(), func(l line) bool { return l.Code == "address_refused" })
		return e.brief(), refused && (name != upstream.Rebind || len(e.Arrived) > 0)
	}
}

// unsent: connections were tried, none carried a byte of the request.
func unsent(name string) Judge {
	return func(e *Evidence) (string, bool) {
		wires := e.World.Upstream.Wires(name)
		for i := 0; i < 50 && len(wires) == 0; i++ { // the upstream may notice a failed handshake after the code does
			time.Sleep(20 * time.Millisecond)
			wires = e.World.Upstream.Wires(name)
		}
		for _, w := range wires {
			if len(w.Bytes) > 0 {
				return fmt.Sprintf("%d bytes were sent", len(w.Bytes)), false
			}
		}
		ls := e.lines()
		return e.brief() + fmt.Sprintf(", %d handshakes failed", len(wires)), len(ls) == 1 && ls[0].Status == 502 && len(wires) > 0
	}
}

// suffixes asks `codeforge check` for domains that belong to many.
func suffixes(ctx context.Context, w *world.World) (string, bool) {
	if w.Mode == world.Docker {
		return "the same check runs in embedded mode", true
	}
	var bad []string
	for _, domain := range []string{"*.github.io", "*.com", "*.co.uk", "*.s3.amazonaws.com", "*.herokuapp.com", "*", "*.*.example.com", "a.*.example.com", "*.test"} {
		dir, err := world.NewDir(world.Self, []world.API{{Name: "wide", Config: map[string]any{
			"description": "x", "domains": []string{domain}, "credentials": map[string]any{"WIDE_TOKEN": "a-long-credential"},
		}}}, nil)
		if err != nil {
			return err.Error(), false
		}
		out, code, err := world.Tool(ctx, world.Command{Dir: dir, Args: []string{"check", "--apis", filepath.Join(dir, "apis")}})
		_ = os.RemoveAll(dir)
		if err != nil || code != 1 || !strings.Contains(out, "domains") {
			bad = append(bad, domain)
		}
	}
	if len(bad) > 0 {
		return "accepted: " + strings.Join(bad, " "), false
	}
	return "nine of nine refused at load", true
}
