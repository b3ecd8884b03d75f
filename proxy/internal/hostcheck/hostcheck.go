// Package hostcheck checks which hosts of the catalog the proxy can reach, for codeforge doctor.
//
// Contract: each check is one HEAD request without a credential, through the same resolver, guard, trust and upstream
// proxy as the requests of code. It follows no redirect.
package hostcheck

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	hostTime   = 8 * time.Second
	concurrent = 8
)

// Checker checks hosts.
type Checker struct {
	Pool *upstream.Pool
	// Catalog returns the catalog in force.
	Catalog   func() *catalog.Catalog
	UserAgent string
}

// checkTarget is a host to check, and its API.
type checkTarget struct {
	api  *catalog.API
	host string
	url  *url.URL
}

// CheckHosts checks the hosts of the active APIs and the servers that issue their credentials, each host once. It skips
// wildcards, because they name no single host.
func (c *Checker) CheckHosts(ctx context.Context) []proxyapi.HostCheck {
	ctx, cancel := context.WithCancel(ctx) // closes the connections
	defer cancel()
	list := listTargets(c.Catalog())
	out := make([]proxyapi.HostCheck, len(list))
	var g errgroup.Group
	g.SetLimit(concurrent)
	for i, t := range list {
		g.Go(func() error { out[i] = c.checkHost(ctx, t); return nil })
	}
	_ = g.Wait()
	return out
}

func listTargets(cat *catalog.Catalog) (out []checkTarget) {
	seen := map[string]bool{}
	add := func(a *catalog.API, scheme, host string) {
		if host != "" && !strings.HasPrefix(host, "*.") && !seen[host] {
			seen[host] = true
			out = append(out, checkTarget{a, host, &url.URL{Scheme: scheme, Host: host, Path: "/"}})
		}
	}
	for _, a := range cat.APIs() {
		if !a.Active {
			continue
		}
		for _, h := range a.Hosts {
			add(a, a.Scheme(h), h.String())
		}
		for _, cr := range a.Credentials { // without its token server, a credential expires
			add(upstream.DropCertificate(a), "https", cr.MintHost())
		}
	}
	return out
}

func (c *Checker) checkHost(ctx context.Context, t checkTarget) proxyapi.HostCheck {
	ctx, cancel := context.WithTimeout(ctx, hostTime)
	defer cancel()
	out := proxyapi.HostCheck{Host: t.host, Plain: t.url.Scheme == "http"}
	req := (&http.Request{
		Method: http.MethodHead, URL: t.url, Host: t.host, Header: http.Header{"User-Agent": {c.UserAgent}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	w := upstream.Want{APIs: []*catalog.API{t.api}, Version: "reach", Owner: upstream.NewOwner(ctx)}
	began := time.Now()
	err := c.Pool.CheckTarget(ctx, w, t.url)
	var resp *http.Response
	if err == nil {
		resp, err = c.Pool.RoundTrip(req, w)
	}
	if err != nil {
		name, _, _ := strings.Cut(t.api.Name, " ")
		failure := upstream.Failure{Code: upstream.ClassifyError(err), Host: t.host, API: name, Cause: err}.NewRefusal()
		out.Code, out.Problem, out.Hint = failure.Code, failure.Error, failure.Person
		return out
	}
	_ = resp.Body.Close()
	took := time.Since(began)
	out.Status, out.Milliseconds = resp.StatusCode, took.Milliseconds()
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		skew := (time.Since(date) - took/2).Milliseconds()
		out.SkewMilliseconds = &skew
	}
	return out
}
