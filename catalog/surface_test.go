package catalog_test

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
)

func TestParseSurface(t *testing.T) {
	must := map[string]string{
		"header": "header", "header:Authorization": "header:Authorization", "header:x-api-key": "header:X-Api-Key",
		"header:PRIVATE-TOKEN": "header:Private-Token", "header:X-Goog-Api-Key": "header:X-Goog-Api-Key",
		"query": "query", "query:key": "query:key", "query:filter[key]": "query:filter[key]", "query:a:b": "query:a:b",
		"path": "path", "body": "body", "body:client_secret": "body:client_secret", "body:größe": "body:größe",
		"cookie:session": "cookie:session", "cookie:connect.sid": "cookie:connect.sid", "cookie:__Host-id": "cookie:__Host-id",
	}
	for in, want := range must {
		s, err := catalog.ParseSurface(in)
		if err != nil || s.String() != want {
			t.Errorf("ParseSurface(%q) = %q, %v; want %q", in, s, err, want)
		}
		if again, err := catalog.ParseSurface(s.String()); err != nil || again != s {
			t.Errorf("%q does not parse as itself: %v, %v", s, again, err)
		}
	}
	mustNot := []string{
		"", " ", "Header", "HEADER:X-Key", "headers", "header ", " header", "header:", "query:", "body:", "path:", "path:0", "none", "cookie", "cookie:", "cookie:a b", "cookie:a;b", "cookie:a,b", "cookie:a[b]", "cookies:a", "url", "*", "any",
		"header:X Key", "header:X-Key:", "header:X-Key\r\nEvil", "header:Ünicode", "header:X\x00", "query:a b", "query:a&b", "query:a=b", "query:a\nb", "query:\x7f", "body:a\"b", "body:\ufffd",
		"query:" + strings.Repeat("x", 129), "header,query", "header;query:key",
		"header:Cookie", "header:COOKIE", "header:Host", "header:referer", "header:Origin", "header:User-Agent", "header:X-Forwarded-For", "header:x-forwarded-anything", "header:Forwarded",
		"header:Via", "header:From", "header:Link", "header:X-Amz-Meta-Title", "header:x-goog-meta-a", "header:x-ms-meta-b", "header:Content-Type", "header:Content-Disposition",
		"header:If-Match", "header:Idempotency-Key", "header:Traceparent", "header:Tracestate", "header:X-Request-Id", "header:X-Correlation-ID", "header:X-B3-TraceId",
		"header:Connection", "header:Transfer-Encoding", "header:Proxy-Authorization", "header:Upgrade", "header:X-HTTP-Method-Override",
	}
	for _, in := range mustNot {
		if s, err := catalog.ParseSurface(in); err == nil {
			t.Errorf("ParseSurface(%q) = %q; want it refused", in, s)
		} else if s != (catalog.Surface{}) {
			t.Errorf("ParseSurface(%q) gave %v with its error", in, s)
		}
	}
	if got := (catalog.Surface{}).String(); got != "none" {
		t.Errorf("the zero surface is %q", got)
	}
}

// TestSinkHeader goes through every header that publishes, in the cases in which code may write it.
// Promise: declared-places-only
func TestSinkHeader(t *testing.T) {
	for name := range strings.FieldsSeq(`
		Cookie Cookie2 Set-Cookie Host Referer Referrer Origin User-Agent Forwarded Via From Link Idempotency-Key
		X-Idempotency-Key X-Real-Ip X-Client-Ip Client-Ip True-Client-Ip CF-Connecting-IP
		Traceparent Tracestate Baggage B3 Sentry-Trace X-Cloud-Trace-Context X-Amzn-RequestId X-Amzn-Trace-Id Uber-Trace-Id
		X-B3-TraceId X-Datadog-Trace-Id X-Request-Id X-MS-Client-Request-Id X-Correlation-Id
		Http-Referer X-Original-URL X-Rewrite-URL X-Forwarded-For X-Forwarded-Host X-Forwarded
		Connection Keep-Alive TE Trailer Transfer-Encoding Upgrade Expect Max-Forwards Range Date Cache-Control Pragma
		Destination Proxy-Authorization Sec-WebSocket-Protocol Sec-Fetch-Site Accept Accept-Language
		Access-Control-Request-Headers If-Match If-None-Match If-Range
		Content-Length Content-Type Content-Disposition Content-Language X-HTTP-Method-Override X-Method-Override
		Title X-Title Message X-Message Subject X-Subject Tags X-Tags Slug Description X-Description
		X-Amz-Meta-Note X-Goog-Meta-Note X-Ms-Meta-Note X-Object-Meta-Note
		X-Amz-Tagging X-Ms-Tags X-Amz-Website-Redirect-Location
		X-Bz-Info-Note X-Bz-File-Name X-Archive-Meta00-Title X-Archive-Meta-Title Upload-Metadata X-Portkey-Metadata
		X-Oss-Tagging X-Obs-Tagging X-Object-Tags X-Obs-Website-Redirect-Location X-Ms-Blob-Content-Disposition
		Ce-Subject CE-Source Ce-Id Helicone-Property-App Uberctx-Note Ot-Baggage-Note X-File-Name Filename
		T Ti M Ta Tag X-Tag F A Icon X-Icon Click X-Click Attach X-Attach Action X-Actions E Email X-Email Mail
		X-OpenRouter-Title X-Original-URI X-Original-Host X-Cluster-Client-Ip X-User-Agent X-Referer Remote-User
		Elastic-Apm-Traceparent X-Trace X-Span-Id Jaeger-Baggage Prefer Warning
		User_Agent USER.AGENT x_forwarded_for If!None!Match Content_Type X_Amz_Meta_Note x~request~id`) {
		for _, written := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			if !catalog.IsSinkHeader(written) {
				t.Errorf("%s is no sink", written)
			}
		}
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "Private-Token", "X-Auth-Token", "Apikey", "X-Shopify-Access-Token", "DD-API-KEY", "Metadata-Key", "X-Vault-Token", "Ocp-Apim-Subscription-Key", "X-Content-Key", "Linkkey", "X-Aws-Ec2-Metadata-Token", "Client-Id", "X-Email-Token", "X-Amz-Server-Side-Encryption-Customer-Key", "X-Tag-Key", ""} {
		if catalog.IsSinkHeader(name) {
			t.Errorf("%s is a sink", name)
		}
	}
}

func TestValidTokenName(t *testing.T) {
	for _, s := range []string{"ABCDE", "STRIPE_AUTH_TOKEN", "A1234", "A____", "A" + strings.Repeat("B", 63)} {
		if !catalog.ValidTokenName(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"", "ABCD", "abcde", "1ABCD", "_ABCD", "ABC-DE", "ABC DE", "ABCDÉ", "ABCDe", "ABCDE\n", "A" + strings.Repeat("B", 64)} {
		if catalog.ValidTokenName(s) {
			t.Errorf("%q is taken", s)
		}
	}
}
