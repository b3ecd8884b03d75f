package policy

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// TestAnyForm: an override in what a server that looks at no type reads as a form is found, wherever reads split it,
// and text that only has equals signs in it passes.
// Promise: restricted-methods
func TestAnyForm(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for _, kind := range []string{"text/plain", "application/octet-stream", "*/*", "application/xml", "application/json"} {
		for text, bad := range map[string]bool{
			"_method=DELETE": true, "a=b&_method=DELETE": true, "a=b;%5fmethod=delete&c": true, "a=" + long + "&_method=DELETE&": true,
			"x&%255fmethod=%2544ELETE": true, "_method=PUT": false, "_method[]=DELETE": true, "X-HTTP-Method-Override=DELETE": true,
			"a&method=DELETE": false, "payment_method=DELETE&": false, "if (a && b) { self._method = new DELETE; }": false,
			"the field _method=DELETE is not one": false, "_method=" + long: false, "": false,
			"_method=" + strings.Repeat("+", 600) + "DELETE": true, "&_method=" + strings.Repeat("%20", 100): false,
			"a=b&" + strings.Repeat(" ", 600) + "_method=DELETE": true, strings.Repeat("\r\n", 600) + "_method=DELETE": true,
		} {
			if kind == "application/json" {
				text = `{"x":"&` + text + `&"}`
			}
			r, _ := http.NewRequest("POST", "https://a.test", strings.NewReader(text))
			r.Header.Set("Content-Type", kind)
			_, err := BodyOverrides(r, permits)
			var got []byte
			if err == nil {
				got, err = io.ReadAll(iotest.HalfReader(r.Body))
			}
			if (err != nil) != bad || !bad && string(got) != text {
				t.Errorf("%s %.60q: %v", kind, text, err)
			}
		}
	}
}

// TestAddressHeaders: an override in the query of an address that a header puts in the place of the request's own.
// Promise: restricted-methods
func TestAddressHeaders(t *testing.T) {
	for name, copies := range map[string]bool{
		"X-Amz-Copy-Source": true, "X_amz_copy_source": true, "X-Goog-Copy-Source-Generation": true, "X-Copy-From": true,
		"X-Ms-Rename-Source": true, "X-Upyun-Move-Source": true, "X-Symlink-Target": true, "X-Oss-Symlink-Target": true,
		"X-Versions-Location": true, "X_history_location": true, "X-Remove-From-Cache": false, "X-Location": false,
		"X-Object-Manifest": true, "Destination": true, "X-Destination-Id": false, "X-Source": false,
	} {
		if got := HasOtherPath(http.Header{name: {"/private/x"}}); got != copies {
			t.Errorf("%s: %t", name, got)
		}
	}
	for _, name := range []string{"X-Original-Url", "X-Rewrite-Url", "X-Forwarded-Uri", "X-Original-Uri"} {
		if got := HeaderOverrides(http.Header{name: {"/x?a=b&_method=DELETE"}}); len(got) != 1 || got[0] != "DELETE" {
			t.Errorf("%s: %q", name, got)
		}
		if got := HeaderOverrides(http.Header{name: {"/x?payment_method=DELETE"}}); len(got) > 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestQuotesCost: the search for a quoted name takes few allocations for each quote, whatever is between the quotes.
// Promise: bounded-work
func TestQuotesCost(t *testing.T) {
	text := []byte(strings.Repeat(`\"`, 1000))
	if n := testing.AllocsPerRun(10, func() { _ = (&quotedNames{}).scanText(text) }); n > 5000 {
		t.Errorf("%.0f allocations for 1,000 quotes", n)
	}
}
