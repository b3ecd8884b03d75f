package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// checkOutside checks the certificate authority and the hosts. If CodeForge runs, its proxy makes the checks. The
// proxy's container may have another resolver, other names and the certificate. Otherwise this program makes the checks
// that it can.
func checkOutside(ctx context.Context, c Config) []Finding {
	op, _, isLocal, err := mcpclient.ConnectOperator(ctx, c.Server)
	// The proxy knows only the APIs that it has loaded.
	if err != nil || !isLocal || c.OwnAPIs {
		return append(checkAuthority(ctx, c), checkHosts(ctx, c)...)
	}
	d, err := op.Diagnose(ctx, c.Offline)
	if err != nil {
		return []Finding{newFailure("hosts", "the running CodeForge could not check them: "+err.Error(),
			"codeforge status shows whether it is ready")}
	}
	out := []Finding{judgeCA([]byte(d.CA), time.Now(), "the proxy's")}
	switch {
	case c.Offline:
		return append(out, newSkip("hosts", notChecked))
	case len(d.Hosts) == 0:
		return append(out, newSkip("hosts", noHost))
	}
	var skews []time.Duration
	for _, h := range d.Hosts {
		out = append(out, hostFinding(h))
		if h.SkewMilliseconds != nil {
			skews = append(skews, time.Duration(*h.SkewMilliseconds)*time.Millisecond)
		}
	}
	return append(out, checkClock(skews))
}

// hostFinding returns the finding for the proxy's check of a host. A host that may answer later is a warning.
func hostFinding(h proxyapi.HostCheck) Finding {
	check := "host " + h.Host
	switch h.Code {
	case "":
		return newOK(check, describeAnswer(h.Status, h.Milliseconds, h.Plain))
	case "upstream_unreachable", "upstream_timeout", "upstream_broken":
		return newWarning(check, h.Problem, h.Hint)
	}
	return newFailure(check, h.Problem, h.Hint)
}

func describeAnswer(status int, milliseconds int64, plain bool) string {
	how := "certificate verified"
	if plain {
		how = "plain HTTP"
	}
	return fmt.Sprintf("answers (%d, %d ms, %s)", status, milliseconds, how)
}
