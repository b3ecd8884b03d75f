package egress_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// textOf is the text of the hint with a code, or empty.
func textOf(r proxyapi.Receipt, code string) string {
	for _, h := range r.Hints {
		if h.Code == code {
			return h.VoiceText().Model
		}
	}
	return ""
}

// TestETag: an ETag stays if no credential left with the request, if the body was searched before the head left and shows
// no credential, or if every API of the host that has credentials says so. Else it goes, and a hint names the setting.
// Promise: no-oracle
func TestETag(t *testing.T) {
	const etag = `"5d41402abc4b2a76b9719d911017c592"`
	keep := demoAPI(`, "etag": "keep"`)
	second := func(extra string) string {
		return strings.NewReplacer(tokenName, "SECOND_AUTH_TOKEN", secretValue, "second-canary-0123").Replace(demoAPI(extra))
	}
	public := `{"description": "x", "domains": ["` + demoHost + `"], "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"]}`
	const bearer, setting = "Bearer " + tokenName, `"etag": "keep"`
	for name, row := range map[string]struct {
		apis               map[string]string
		method, path, auth string
		hint               string // a part of it. Empty: the ETag stays
	}{
		"HEAD":                         {nil, "HEAD", "/", bearer, "HEAD api.demo.test: answered with an ETag. The proxy removed it"},
		"304":                          {nil, "GET", "/304", bearer, setting},
		"204":                          {nil, "GET", "/204", bearer, setting},
		"without a length":             {nil, "GET", "/chunked", bearer, setting},
		"over 256 KiB":                 {nil, "GET", "/large", bearer, setting},
		"shown":                        {nil, "GET", "/echo", bearer, "answered with a credential and an ETag"},
		"searched":                     {nil, "GET", "/small", bearer, ""},
		"HEAD, nothing sent":           {nil, "HEAD", "/", "", ""},
		"HEAD, kept":                   {map[string]string{"demo": keep}, "HEAD", "/", bearer, ""},
		"304, kept":                    {map[string]string{"demo": keep}, "GET", "/304", bearer, ""},
		"without a length, kept":       {map[string]string{"demo": keep}, "GET", "/chunked", bearer, ""},
		"shown, kept":                  {map[string]string{"demo": keep}, "GET", "/echo", bearer, ""},
		"one of two APIs keeps":        {map[string]string{"demo": keep, "second": second("")}, "HEAD", "/", bearer, setting},
		"both keep":                    {map[string]string{"demo": keep, "second": second(`, "etag": "keep"`)}, "HEAD", "/", bearer, ""},
		"the other has no credentials": {map[string]string{"demo": keep, "public": public}, "HEAD", "/", bearer, ""},
		"signed by AWS":                {map[string]string{"demo": signingAPI}, "HEAD", "/", "AWS4-HMAC-SHA256 SIGN_AWS", ""},
		"signed by AWS, a stream":      {map[string]string{"demo": signingAPI}, "GET", "/chunked", "AWS4-HMAC-SHA256 SIGN_AWS", ""},
		"a signature is shown":         {map[string]string{"demo": signingAPI}, "GET", "/echo", "AWS4-HMAC-SHA256 SIGN_AWS", "answered with a credential and an ETag"},
		"a session token leaves":       {map[string]string{"demo": roleAPI}, "HEAD", "/", "AWS4-HMAC-SHA256 GW_ROLE_KEY", setting},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: row.apis})
			r.upstreams.https(serveRole(func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Etag", etag)
				switch req.URL.Path {
				case "/304":
					w.WriteHeader(http.StatusNotModified)
				case "/204":
					w.WriteHeader(http.StatusNoContent)
				case "/chunked":
					w.(http.Flusher).Flush()
					_, _ = io.WriteString(w, "text")
				case "/large":
					w.Header().Set("Content-Length", "300000")
					_, _ = io.WriteString(w, strings.Repeat("a", 300000))
				case "/echo":
					_, _ = io.WriteString(w, req.Header.Get("Authorization"))
				default:
					_, _ = io.WriteString(w, "text")
				}
			}))
			end := r.begin()
			host := demoHost
			if strings.Contains(row.auth, "GW_ROLE_KEY") {
				host = roleHost
			}
			req, err := http.NewRequest(row.method, "https://"+host+row.path, http.NoBody)
			check(t, err)
			if row.auth != "" {
				req.Header.Set("Authorization", row.auth)
			}
			resp, err := r.client(false).Do(req)
			check(t, err)
			_ = body(t, resp)
			want := etag
			if row.hint != "" {
				want = ""
			}
			hint := textOf(end(), proxyapi.HintETag)
			if got := resp.Header.Get("Etag"); got != want || !strings.Contains(hint, row.hint) || (hint == "") != (row.hint == "") {
				t.Errorf("status %d, ETag %q, hint %q", resp.StatusCode, got, hint)
			}
		})
	}
}

// TestRangeNote: a request whose Range was removed has a hint, and no other one has.
func TestRangeNote(t *testing.T) {
	for name, row := range map[string]struct {
		api, auth, header string
		want              bool
	}{
		"with a key":     {demoAPI(""), "Bearer " + tokenName, "Range", true},
		"another name":   {demoAPI(""), "Bearer " + tokenName, "X-Ms-Range", true},
		"no range":       {demoAPI(""), "Bearer " + tokenName, "X", false},
		"without a key":  {demoAPI(""), "x", "Range", false},
		"signed for S3":  {signingAPI, "AWS4-HMAC-SHA256 SIGN_AWS", "Range", false},
		"signed for API": {strings.ReplaceAll(signingAPI, `"s3"`, `"execute-api"`), "AWS4-HMAC-SHA256 SIGN_AWS", "Range", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": row.api}})
			var up seen
			r.upstreams.https(up.echo())
			end := r.begin()
			req, err := http.NewRequest(http.MethodGet, "https://"+demoHost+"/", http.NoBody)
			check(t, err)
			req.Header.Set("Authorization", row.auth)
			req.Header.Set(row.header, "bytes=0-5")
			resp, err := r.client(false).Do(req)
			check(t, err)
			_ = body(t, resp)
			hint := textOf(end(), "range_removed")
			if got := strings.HasPrefix(hint, "GET api.demo.test: left without its Range header"); got != row.want || (hint != "") != row.want {
				t.Errorf("hint %q", hint)
			}
		})
	}
}
