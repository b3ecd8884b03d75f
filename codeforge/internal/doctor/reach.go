package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
)

const (
	reachTime = 8 * time.Second
	// skew is how far the clock may be off before certificates and signatures begin to fail.
	skew = 2 * time.Minute
)

// reach sends each host of an active API one HEAD without any credential.
func reach(ctx context.Context, c Config) []Finding {
	if c.Offline {
		return []Finding{skip("hosts", "not looked at (--offline)")}
	}
	cat, _ := catalog.Load(c.APIs, catalog.Options{Getenv: c.Getenv}) // configuration says what does not load
	type target struct {
		api  *catalog.API
		host string
	}
	var targets []target
	seen := map[string]bool{}
	for _, a := range cat.APIs() {
		for _, h := range a.Hosts {
			name := h.String()
			if !a.Active || seen[name] || strings.HasPrefix(name, "*.") {
				continue
			}
			seen[name] = true
			targets = append(targets, target{a, name})
		}
	}
	if len(targets) == 0 {
		return []Finding{skip("hosts", "no active API names a host")}
	}
	out := make([]Finding, len(targets))
	dates := make([]time.Duration, len(targets))
	var wg sync.WaitGroup
	seats := make(chan struct{}, 8)
	for i, t := range targets {
		wg.Go(func() {
			seats <- struct{}{}
			defer func() { <-seats }()
			out[i], dates[i] = c.head(ctx, t.api, t.host)
		})
	}
	wg.Wait()
	return append(out, clock(dates))
}

// noDate says that a host told no time.
const noDate = time.Duration(1<<63 - 1)

// head asks one host, and says how far its clock is from ours.
func (c Config) head(ctx context.Context, a *catalog.API, host string) (Finding, time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	check := "host " + host
	pool, err := c.roots(a)
	if err != nil {
		return fail(check, err.Error(), ""), noDate
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	if c.Settings.UpstreamProxy != nil {
		tr.Proxy = http.ProxyURL(c.Settings.UpstreamProxy)
	}
	client := http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+host+"/", nil)
	if err != nil {
		return fail(check, err.Error(), ""), noDate
	}
	req.Header.Set("User-Agent", c.Settings.UserAgent)
	started := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return unreachable(check, a, err), noDate
	}
	_ = resp.Body.Close()
	took := time.Since(started)
	off := noDate
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		off = time.Since(date) - took/2
	}
	return ok(check, fmt.Sprintf("answers (%d, %d ms, certificate verified)", resp.StatusCode, took.Milliseconds())), off
}

// roots are the authorities that the proxy trusts for the API.
func (c Config) roots(a *catalog.API) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if len(a.CAs) > 0 {
		pool.AppendCertsFromPEM(a.CAs)
	}
	if path := c.Settings.UpstreamCAFile; path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("UPSTREAM_CA_FILE: %w", err)
		}
		pool.AppendCertsFromPEM(text)
	}
	return pool, nil
}

// unreachable says why a host did not answer, and what to do.
func unreachable(check string, a *catalog.API, err error) Finding {
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return fail(check, "the name does not exist", "correct domains in apis/"+a.Name+"/config.json")
	case errors.As(err, &dns):
		return warn(check, "the name cannot be resolved: "+dns.Err, "look at this machine's network and DNS")
	case errors.As(err, &unknown):
		return fail(check, "its certificate is of an unknown authority", "set ca_file in apis/"+a.Name+"/config.json, or UPSTREAM_CA_FILE behind a company's proxy")
	case errors.As(err, &name):
		return fail(check, "its certificate is for another name", "correct domains in apis/"+a.Name+"/config.json")
	case errors.As(err, &invalid):
		return fail(check, "its certificate is not valid: "+invalid.Error(), "is this machine's clock right?")
	case errors.Is(err, context.DeadlineExceeded):
		return warn(check, fmt.Sprintf("no answer within %s", reachTime), "look at this machine's network; behind a company's proxy set UPSTREAM_PROXY")
	}
	return warn(check, err.Error(), "look at this machine's network; behind a company's proxy set UPSTREAM_PROXY")
}

// clock compares this machine's clock with what most hosts say: the difference in the middle.
func clock(off []time.Duration) Finding {
	var known []time.Duration
	for _, d := range off {
		if d != noDate {
			known = append(known, d)
		}
	}
	if len(known) == 0 {
		return skip("clock", "no host told the time")
	}
	slices.Sort(known)
	d := known[len(known)/2]
	if d.Abs() > skew {
		return fail("clock", fmt.Sprintf("this machine's clock is off by %s", d.Round(time.Second)), "switch on time synchronisation (timedatectl set-ntp true)")
	}
	return ok("clock", "agrees with the hosts")
}
