package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestDisarmed mounts attacks where the defence they try is switched off by configuration: each must succeed, in the
// suite's own judgement. A check that cannot fail is no check.
// Promise: checks-can-fail
func TestDisarmed(t *testing.T) {
	w := world.Start(t, world.Config{Env: map[string]string{"YOLO_MODE": "true"}, TrustCA: true, Change: disarm})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	attacks := unknown()
	for _, a := range Suite() {
		if slices.Contains(open, a.Name) {
			attacks = append(attacks, a)
		}
	}
	if len(attacks) != len(unknown())+len(open) {
		t.Errorf("%d attacks found for %d names", len(attacks)-len(unknown()), len(open))
	}
	for _, a := range attacks {
		if o := Run(ctx, w, a); o.Held {
			t.Errorf("%s %s: held (%s) though its defence is off\n%s", a.Section, a.Name, o.Seen, clip(o.Detail, 1500))
		}
	}
	t.Logf("%d attacks succeed without their defence", len(attacks))
}

// open are attacks that succeed in the disarmed world, by the defence that is off there.
var open = []string{
	// YOLO_MODE opens hosts in no API.
	"host in no API", "redirect to a host in no API, followed by fetch",
	// Nothing is restricted.
	"restricted method POST", "restricted method PUT", "restricted method PATCH", "restricted method DELETE", "override header X-HTTP-Method-Override", "_method in the query",
	"restricted POST overridden to GET", "_method in a form to a host where DELETE alone is restricted", "restricted API, method PURGE", "API of allowed methods, method POST",
	"one host in two APIs: the other's restriction",
	// The credential may go anywhere.
	"name in chat text of a query", "name of a header credential in the path", "name of a header credential in a JSON body",
	// Plain HTTP is allowed.
	"plain http to a host with credentials", "redirect to plain http of the same host",
	// REDACTING_STRINGS is not set.
	"redacted string in a request", "redacted string in a chunked body, cut", "redacted string in a WebSocket message",
}

// disarm takes the defences out of the configuration. OFF_TOKEN and HTTPBIN_HARD are credentials that the proxy does
// not know, so it cannot scrub them.
func disarm(apis []world.API) []world.API {
	var out []world.API
	for _, a := range apis {
		if a.Name == "off" {
			continue
		}
		delete(a.Config, "restricted_methods")
		delete(a.Config, "allowed_methods")
		a.Config["allow_http"] = true
		if a.Name == "httpbin" {
			creds := a.Config["credentials"].(map[string]any)
			creds["HTTPBIN_TOKEN"] = map[string]any{"value": creds["HTTPBIN_TOKEN"], "in": []string{"header", "query", "path", "body"}}
			delete(creds, "HTTPBIN_HARD")
		}
		out = append(out, a)
	}
	return out
}

// unknown are echoes of credentials that the proxy does not know, in every form, place and coding: the search must find
// each of them, or it would not find a leak either.
func unknown() []Attack {
	var list []Attack
	add := func(name, token, query string) {
		list = append(list, Attack{Section: "B", Name: "unknown to the proxy: " + name, Judge: scrubbed(token, false),
			Code: fmt.Sprintf(`await show(fetch("https://httpbin.test/x/echo?t=TRIAL&what=known:%s&%s", { redirect: "manual" }));`, token, query)})
	}
	for _, f := range canary.Forms() {
		add(f.Name, "OFF_TOKEN", "form="+f.Name)
		add(f.Name+" of a hard one", "HTTPBIN_HARD", "form="+f.Name)
	}
	for _, p := range []string{"location", "link", "header", "challenge", "disposition", "header-name"} {
		add("in "+p, "OFF_TOKEN", "place="+p)
	}
	for _, enc := range strings.Fields("gzip deflate br zstd gzip,br gzip-members x-gzip") {
		add("under "+enc, "OFF_TOKEN", "enc="+enc)
	}
	for _, f := range strings.Fields("chunk1 chunk7 sse ndjson split:9") {
		add("framed by "+f, "OFF_TOKEN", "frame="+f)
	}
	for _, a := range Suite() {
		// The ways in which a server of RFC 6455 sends the credential.
		if strings.Contains(a.Code, `await speak("what=known:HTTPBIN_TOKEN&`) && a.Expected == "scrubbed" {
			a.Name, a.Judge = "unknown to the proxy: "+a.Name, notEchoed("OFF_TOKEN")
			a.Code = strings.ReplaceAll(a.Code, "known:HTTPBIN_TOKEN", "known:OFF_TOKEN")
			list = append(list, a)
		}
	}
	return list
}
