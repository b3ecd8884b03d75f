package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// checkOutside asks the running proxy for the certificate authority and the hosts. Only the proxy reaches the hosts as
// code does: its container may have another resolver, other names and other certificates.
func checkOutside(ctx context.Context, c Config) []Finding {
	op, _, isLocal, err := mcpclient.ConnectOperator(ctx, c.Server)
	// The proxy knows only the APIs that it has loaded.
	if err != nil || !isLocal || c.OwnAPIs {
		return []Finding{newSkip("hosts", "the proxy checks hosts, clock and certificates if CodeForge runs with these APIs")}
	}
	d, err := op.Diagnose(ctx, c.Offline)
	if err != nil {
		return []Finding{newFailure("hosts", "the running CodeForge could not check them: "+err.Error(),
			"codeforge status shows whether it is ready")}
	}
	out := []Finding{checkCA([]byte(d.CA), time.Now())}
	switch {
	case c.Offline:
		return append(out, newSkip("hosts", "not checked (--offline)"))
	case len(d.Hosts) == 0:
		return append(out, newSkip("hosts", "no active API names a host"))
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
		how := "certificate verified"
		if h.Plain {
			how = "plain HTTP"
		}
		return newOK(check, fmt.Sprintf("answers (%d, %d ms, %s)", h.Status, h.Milliseconds, how))
	case "upstream_unreachable", "upstream_timeout", "upstream_broken":
		return newWarning(check, h.Problem, h.Hint)
	}
	return newFailure(check, h.Problem, h.Hint)
}

// maxSkew is the difference between this machine's clock and the hosts' that certificates and logins still tolerate.
const maxSkew = 2 * time.Minute

// checkClock compares this machine's clock with the median of the hosts' clocks: a single wrong host does not count.
func checkClock(skews []time.Duration) Finding {
	if len(skews) == 0 {
		return newSkip("clock", "no host sent a Date header")
	}
	slices.Sort(skews)
	d := skews[len(skews)/2]
	if d.Abs() > maxSkew {
		return newFailure("clock", fmt.Sprintf("this machine's clock is off by %s", d.Round(time.Second)),
			"enable time synchronisation (timedatectl set-ntp true)")
	}
	return newOK("clock", "agrees with the hosts")
}
