package attack

import (
	"bytes"
	"fmt"
	"strings"
)

// unclearRequests are requests that servers read in different ways: where one finds the declared place, another finds text
// that it publishes. Nothing may be swapped into them.
func unclearRequests() []Attack {
	return append(append(unclearBodies(), unclearHeads()...), unclearStreams()...)
}

const (
	jsonType = "application/json"
	formType = "application/x-www-form-urlencoded"
	unclear  = "ambiguous_request"
)

// unclearBodies are short bodies: they are refused before anything leaves.
func unclearBodies() []Attack {
	var list []Attack
	for _, r := range []struct{ name, kind, body string }{
		{"JSON: a comment around the declared key", jsonType, `{"comment":/*1,"client_secret":*/"HTTPBIN_BODY"}`},
		{"JSON: a comment to the line's end", jsonType, "{\"comment\"://1,\"client_secret\":\n\"HTTPBIN_BODY\"}"},
		{"JSON: a comment behind a hash", jsonType, "{\"comment\":#1,\"client_secret\":\n\"HTTPBIN_BODY\"}"},
		{"JSON: single quotes", jsonType, `{"x":1,'comment':',"client_secret":"HTTPBIN_BODY",'}`},
		{"JSON: a key without quotes", jsonType, `{"client_secret":1,comment:"HTTPBIN_BODY"}`},
		{"JSON: a number as a key", jsonType, `{"client_secret":1,2:"HTTPBIN_BODY"}`},
		{"JSON: a comma is missing", jsonType, `{"client_secret":1 "comment":"HTTPBIN_BODY"}`},
		{"JSON: a comma too many", jsonType, `{"client_secret":"HTTPBIN_BODY",}`},
		{"JSON: NaN", jsonType, `{"x":NaN,"client_secret":"HTTPBIN_BODY"}`},
		{"JSON: a byte order mark", jsonType, "\ufeff{\"client_secret\":\"HTTPBIN_BODY\"}"},
		{"JSON: the declared key twice", jsonType, `{"client_secret":"HTTPBIN_BODY","client_secret":"x"}`},
		{"JSON: the declared key twice, escaped and in another case", jsonType, `{"client_secret":"HTTPBIN_BODY","\u0043lient_secret":"x"}`},
		{"JSON: more behind the end", jsonType, `{"client_secret":"HTTPBIN_BODY"} {"comment":1}`},
		{"JSON: deep", jsonType, strings.Repeat("[", 1000) + `{"client_secret":"HTTPBIN_BODY"}` + strings.Repeat("]", 1000)},
		{"JSON in a charset", "application/json; charset=utf-7", `{"comment":"+ACI-","client_secret":"HTTPBIN_BODY"}`},
		{"JSON without a type, which is a form to some", "", `{"x":"&comment=","client_secret":"HTTPBIN_BODY"}`},
		{"JSON lines: an object over two lines", "application/x-ndjson", "{\"x\":1,\n\"client_secret\":\"HTTPBIN_BODY\"}"},
		{"form that is JSON to those who look at no type", formType, `{"comment":"&client_secret=HTTPBIN_BODY&"}`},
		{"form: the declared field twice", formType, "client_secret=HTTPBIN_BODY&client_secret[comment]=x"},
		{"form: another separator", formType, "client_secret=HTTPBIN_BODY&a=1;comment=2"},
		{"form: an escape that is none", formType, "a=%zz&client_secret=HTTPBIN_BODY"},
		{"form: _charset_", formType, "_charset_=utf-7&client_secret=HTTPBIN_BODY"},
		{"form in a charset", formType + "; charset=cp037", "client_secret=HTTPBIN_BODY"},
	} {
		kind := ""
		if r.kind != "" {
			kind = fmt.Sprintf(`"Content-Type": %q`, r.kind)
		}
		list = append(list, Attack{
			Section: "A", Name: r.name, Expected: "refused, nothing sent", Judge: refused(unclear),
			Code: fmt.Sprintf(`await show(fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { %s }, body: new TextEncoder().encode(%q) }));`, kind, r.body),
		})
	}
	return append(list,
		Attack{Section: "A", Name: "JSON that is a form to those who look at no type", Expected: "no field behind a separator", Judge: unseparated,
			Code: fmt.Sprintf(`await show(fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": %q }, body: %q }));`, jsonType, `{"x":"&comment=","y":";comment=","client_secret":"HTTPBIN_BODY"}`)},
		Attack{Section: "A", Name: "control: no JSON, without a name", Expected: "sent as it is", Judge: intact(`{"x":/*&*/NaN}`),
			Code: fmt.Sprintf(`await show(fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": %q }, body: %q }));`, jsonType, `{"x":/*&*/NaN}`)},
	)
}

// unclearHeads are the same in the head of a request.
func unclearHeads() []Attack {
	var list []Attack
	for _, r := range []struct{ name, target, header, body string }{
		{"two Content-Types", "/anything", `Content-Type: application/json\r\nContent-Type: text/plain\r\n`, `{"client_secret":"HTTPBIN_BODY"}`},
		{"a Content-Type with an underscore besides", "/anything", `Content-Type: application/json\r\nContent_Type: text/plain\r\n`, `{"client_secret":"HTTPBIN_BODY"}`},
		{"a Content-Type of two types", "/anything", `Content-Type: application/json, text/plain\r\n`, `{"client_secret":"HTTPBIN_BODY"}`},
		{"Authorization: a quote within a word", "/anything", `Authorization: X comment=a\", token=HTTPBIN_TOKEN, b=\"\r\n`, ""},
		{"Authorization: single quotes", "/anything", `Authorization: X comment='a, token=HTTPBIN_TOKEN, b='\r\n`, ""},
		{"Authorization: a parameter twice", "/anything", `Authorization: X token=HTTPBIN_TOKEN, Token=x\r\n`, ""},
		{"Authorization: a star parameter", "/anything", `Authorization: X token*=HTTPBIN_TOKEN\r\n`, ""},
		{"Authorization twice", "/anything", `Authorization: Bearer HTTPBIN_TOKEN\r\nAuthorization: X comment=\r\n`, ""},
		{"a header twice, with an underscore", "/anything", `X-Api-Key: HTTPBIN_NAMED\r\nX_Api_Key: x\r\n`, ""},
		{"query: a charset that some decode it in", "/anything/HTTPBIN_PATH", `Content-Type: text/plain; charset=cp037\r\n`, ""},
		{"path: dot segments", "/anything/HTTPBIN_PATH/../x", "", ""},
		{"path: dot segments, escaped twice", "/anything/HTTPBIN_PATH/%252e%252e/x", "", ""},
		{"path: dot segments behind a parameter", "/anything/HTTPBIN_PATH/..;a=b/x", "", ""},
		{"path: a backslash", "/anything/x%5c..%5c/HTTPBIN_PATH", "", ""},
	} {
		text := "GET %s?t=TRIAL HTTP/1.1\\r\\nHost: httpbin.test\\r\\n%sConnection: close\\r\\n\\r\\n"
		args := []any{r.target, r.header}
		if r.body != "" {
			text = "POST %s?t=TRIAL HTTP/1.1\\r\\nHost: httpbin.test\\r\\n%sContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n%s"
			args = append(args, len(r.body), strings.ReplaceAll(r.body, `"`, `\"`))
		}
		list = append(list, Attack{
			Section: "A", Name: r.name, Expected: "refused, nothing sent", Judge: refused(unclear, "bad_request"),
			Code: `await raw("httpbin.test", "httpbin.test", "` + fmt.Sprintf(text, args...) + `");`,
		})
	}
	for _, name := range []string{"User_Agent", "User.Agent", "X_Forwarded_For", "content_Disposition", "If!Match"} {
		list = append(list, Attack{
			Section: "A", Name: "name in the header " + name, Expected: "not swapped", Judge: unswapped("HTTPBIN_TOKEN", false),
			Code: fmt.Sprintf(`await raw("httpbin.test", "httpbin.test", "GET /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n%s: HTTPBIN_TOKEN\r\nConnection: close\r\n\r\n");`, name),
		})
	}
	return list
}

// unclearStreams are bodies that turn out to be ambiguous when their beginning has been swapped into.
func unclearStreams() []Attack {
	const must = "refused, never whole"
	stream := func(kind, first, last string, filler int) string {
		return fmt.Sprintf(`const text = new TextEncoder(); const parts = [%q, "z".repeat(%d), %q];
const body = new ReadableStream({ async pull(c) { const p = parts.shift(); if (p === undefined) { c.close(); return; } c.enqueue(text.encode(p)); await new Promise((d) => setTimeout(d, 50)); } });
await show(fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", headers: { "Content-Type": %q }, body }));`, first, filler, last, kind)
	}
	return []Attack{
		{Section: "A", Name: "JSON: the declared key again, late in a stream", Expected: "refused, nothing sent of it", Judge: neverWhole(true),
			Code: stream(jsonType, `{"client_secret":"HTTPBIN_BODY","x":"`, `","client_secret":"x"}`, 1000)},
		{Section: "A", Name: "JSON: the declared key again, after 600 KiB", Expected: must, Judge: neverWhole(false),
			Code: stream(jsonType, `{"client_secret":"HTTPBIN_BODY","x":"`, `","client_secret":"x"}`, 600<<10)},
		{Section: "A", Name: "form: the declared field again, after 600 KiB", Expected: must, Judge: neverWhole(false),
			Code: stream(formType, "client_secret=HTTPBIN_BODY&x=", "&client_secret=x", 600<<10)},
		{Section: "A", Name: "WebSocket: JSON with a comment around the declared key", Expected: "not sent", Judge: func(e *Evidence) (string, bool) {
			switch {
			case strings.Contains(e.Result.Out, "comment"):
				return "the message arrived", false
			case !strings.Contains(e.Result.Out, "closed"):
				return "not mounted: " + e.brief(), false
			}
			return "the connection was closed", true
		}, Code: `const s = new WebSocket("wss://httpbin.test/x/ws?t=TRIAL"); let got = "";
await new Promise((d) => { s.onopen = () => s.send('{"comment":/*1,"client_secret":*/"HTTPBIN_BODY"}'); s.onmessage = (m) => { got += m.data; if (got.includes("comment")) s.close(); }; s.onclose = d; s.onerror = d; setTimeout(d, 4000); });
out({ seen: "closed " + got });`},
	}
}

// neverWhole: the proxy refused, and what it may have sent was broken off. With unsent not even that had the credential.
func neverWhole(unsent bool) Judge {
	return func(e *Evidence) (string, bool) {
		for _, s := range e.Arrived {
			if !bytes.Contains(s.Body, []byte("[broken off")) {
				return "a whole request arrived", false
			}
		}
		if unsent && e.got("HTTPBIN_BODY") {
			return "the credential left before the refusal", false
		}
		ls := e.lines()
		return e.brief(), len(ls) == 1 && ls[0].Code == unclear
	}
}

// unseparated: the credential arrived, in a body that no parser of forms takes apart.
func unseparated(e *Evidence) (string, bool) {
	if !e.got("HTTPBIN_BODY") || len(e.Arrived) != 1 {
		return "did not arrive: " + e.brief(), false
	}
	if bytes.ContainsAny(e.Arrived[0].Body, "&;") {
		return "the body has a separator of forms", false
	}
	return "swapped, without a separator", true
}

// intact: one request arrived with exactly this body.
func intact(body string) Judge {
	return func(e *Evidence) (string, bool) {
		if len(e.Arrived) != 1 || string(e.Arrived[0].Body) != body {
			return "not as it was: " + e.brief(), false
		}
		return "arrived as it was", true
	}
}
