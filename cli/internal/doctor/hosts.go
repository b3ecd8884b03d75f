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
	headTimeout = 8 * time.Second
	// maxSkew is the difference of clocks from which certificates and signatures can fail.
	maxSkew = 2 * time.Minute
)

// Reasons why doctor checks no host.
const (
	notChecked = "not checked (--offline)"
	noHost     = "no active API names a host"
)

// checkHosts sends one HEAD, without a credential, to each host of an active API and to each token server of one.
func checkHosts(ctx context.Context, c Config) []Finding {
	if c.Offline {
		return []Finding{newSkip("hosts", notChecked)}
	}
	cat, _ := catalog.Load(c.APIs, catalog.Options{Getenv: c.Getenv}) // configuration reports mistakes
	type target struct {
		api  *catalog.API
		host string
		url  string
	}
	var targets []target
	var ofContainers []Finding
	seen := map[string]bool{}
	for _, a := range cat.APIs() {
		for _, h := range a.Hosts {
			name := h.String()
			if !a.Active || seen[name] || strings.HasPrefix(name, "*.") {
				continue
			}
			if bare, _, _ := strings.Cut(name, ":"); bare == "host.docker.internal" {
				ofContainers = append(ofContainers, newSkip("host "+name, "only containers know this name: start CodeForge, and "+
					"its proxy checks the host"))
				continue
			}
			seen[name] = true
			targets = append(targets, target{a, name, a.Scheme(h) + "://" + name + "/"})
		}
		for _, cr := range a.Credentials { // without its token server, a credential expires and the host is useless
			if name := cr.MintHost(); a.Active && name != "" && !seen[name] {
				seen[name] = true
				targets = append(targets, target{a, name, "https://" + name + "/"})
			}
		}
	}
	if len(targets) == 0 && len(ofContainers) == 0 {
		return []Finding{newSkip("hosts", noHost)}
	}
	out := make([]Finding, len(targets))
	skews := make([]time.Duration, len(targets))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, t := range targets {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out[i], skews[i] = c.sendHead(ctx, t.api, t.host, t.url)
		})
	}
	wg.Wait()
	return append(append(out, ofContainers...), checkClock(skews))
}

// noDate is the skew of a host that sent no Date.
const noDate = time.Duration(1<<63 - 1)

// sendHead sends the request to one host, and returns the difference between this machine's clock and the host's.
func (c Config) sendHead(ctx context.Context, a *catalog.API, host, url string) (Finding, time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, headTimeout)
	defer cancel()
	check := "host " + host
	pool, err := c.loadRoots(a)
	if err != nil {
		return newFailure(check, err.Error(), ""), noDate
	}
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}
	if c.Settings.UpstreamProxy != nil {
		tr.Proxy = http.ProxyURL(c.Settings.UpstreamProxy)
	}
	client := http.Client{
		Transport: tr,
		// A redirect could lead to a host that no API names.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return newFailure(check, err.Error(), ""), noDate
	}
	req.Header.Set("User-Agent", c.Settings.UserAgent)
	started := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return explainUnreachable(check, a, err), noDate
	}
	_ = resp.Body.Close()
	took := time.Since(started)
	off := noDate
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		// The host set the date in the middle of the request, roughly.
		off = time.Since(date) - took/2
	}
	return newOK(check, describeAnswer(resp.StatusCode, took.Milliseconds(), resp.TLS == nil)), off
}

// loadRoots returns the authorities that the proxy trusts for an API.
func (c Config) loadRoots(a *catalog.API) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(a.CAs)
	if path := c.Settings.UpstreamCAFile; path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("UPSTREAM_CA_FILE: %w", err)
		}
		pool.AppendCertsFromPEM(text)
	}
	return pool, nil
}

// explainUnreachable explains why a host did not answer, and names a remedy.
func explainUnreachable(check string, a *catalog.API, err error) Finding {
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return newFailure(check, "the name does not exist",
			"check domains in apis/"+a.Name+"/config.json, and this machine's internet access")
	case errors.As(err, &dns):
		return newWarning(check, "the name cannot be resolved: "+dns.Err, "check this machine's network and DNS")
	case errors.As(err, &unknown):
		return newFailure(check, "its certificate is signed by an unknown authority",
			"set ca_file in apis/"+a.Name+"/config.json, or UPSTREAM_CA_FILE behind a company's proxy")
	case errors.As(err, &name):
		return newFailure(check, "its certificate is for another name", "correct domains in apis/"+a.Name+"/config.json")
	case errors.As(err, &invalid):
		return newFailure(check, "its certificate is not valid: "+invalid.Error(), "check this machine's clock")
	}
	text := err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		text = fmt.Sprintf("no answer within %s", headTimeout)
	}
	return newWarning(check, text, "check this machine's network; behind a company's proxy set UPSTREAM_PROXY")
}

// checkClock judges this machine's clock by the median difference from the hosts' clocks, so one wrong host does not
// matter.
func checkClock(skews []time.Duration) Finding {
	var known []time.Duration
	for _, d := range skews {
		if d != noDate {
			known = append(known, d)
		}
	}
	if len(known) == 0 {
		return newSkip("clock", "no host sent a Date header")
	}
	slices.Sort(known)
	d := known[len(known)/2]
	if d.Abs() > maxSkew {
		return newFailure("clock", fmt.Sprintf("this machine's clock is off by %s", d.Round(time.Second)),
			"enable time synchronisation (timedatectl set-ntp true)")
	}
	return newOK("clock", "agrees with the hosts")
}
