package egress_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// readingRules permit three kinds of paths, and nothing of an administrator's.
const readingRules = `, "allow_http": true, "rules": [
	{"path": "/v1/admin/**", "then": "refuse"},
	{"methods": ["GET"], "path": "/v1/items", "then": "allow"},
	{"methods": ["GET"], "path": "/v1/items/*/notes", "then": "allow"},
	{"methods": ["GET"], "path": "/v1/open/**", "then": "allow"},
	{"graphql": "query", "path": "/graphql", "then": "allow"}]`

// permitted reports whether a path, as a server read it, is one of readingRules.
func permitted(p string) bool {
	parts := strings.Split(p, "/")
	return p == "/v1/items" || p == "/v1/open" || strings.HasPrefix(p, "/v1/open/") && path.Clean(p) == strings.TrimSuffix(p, "/") ||
		len(parts) == 5 && strings.HasPrefix(p, "/v1/items/") && parts[3] != "" && parts[4] == "notes" && path.Clean(p) == p
}

// pathSpellings are ways to write /v1/admin/users, and paths that may be taken for it or for what the rules permit.
func pathSpellings() []string {
	out := []string{
		"/v1/items", "/v1/items/7/notes", "/v1/items/a%20b/notes", "/v1/items/caf%C3%A9/notes", "/v1/items/%40me/notes", "/v1/items/@me/notes",
		"/v1/items/a:b/notes", "/v1/items/a+b/notes", "/v1/items/.hidden/notes", "/v1/items/a.json/notes", "/v1/items/~a/notes", "/v1/items/%7Ea/notes",
		"/v1/open", "/v1/open/", "/v1/open/a", "/v1/open/a/b/c", "/v1/open/admin", "/v1/open/a%20b", "/v1/open/%C3%A9", "/v1/open/a=b&c", "/v1/open/(a)",
		"/v1/open/v1/admin", "/v1/open/...", "/v1/open/a/", "/v1/open/%E2%80%AE", "/v1/open/a%27b",
		"/v1/items/", "/v1/items//", "/v1//items", "//v1/items", "/v1/./items", "/v1/%69tems", "/%76%31/items", "/v1/items%20", "/v1/items%09", "/v1/items.",
		"/v1/items;x", "/v1/items;/7/notes", "/v1/items/;/notes", "/v1/items//notes", "/v1/items/%2f/notes", "/v1/items/7%2fnotes", "/v1/items/7/notes/",
		"/v1/items/7/%6eotes", "/v1/items/7/notes%00", "/v1/items/7/notes%3fx", "/v1/items/7/notes%23", "/v1/items/./notes", "/v1/items/../notes", "/v1/items/%2e/notes",
		"/v1/items/%2e%2e/notes", "/v1/items/.%2e/notes", "/v1/items/%252e%252e/notes", "/v1/items/..;/notes", "/v1/items/..%5c/notes", "/v1/items/..%00/notes",
		"/V1/items", "/v1/Items", "/v1/%49tems", "/v1/items/7/Notes", "/v1/items?/../admin", "/v1/items%3f/../admin", "/",
	}
	up := []string{"..", "%2e%2e", ".%2e", "%2E%2e", "%252e%252e", "..;", "..%00", "%2e%2e%2f..", "..%5c..", "..\\..", "%c0%ae%c0%ae", "%u002e%u002e", ".%00.", "..%20", "..%09", "%ef%bc%8e%ef%bc%8e"}
	for _, s := range up {
		out = append(out, "/v1/open/"+s+"/admin/users", "/v1/open/a/"+s+"/"+s+"/admin/users")
	}
	separators := []string{"//", "/./", "/.//", "%2f", "%2F", "%5c", "\\", "/%2e/", "%252f", "/;/", ";/", "/;a=b/", "%00/", "/%00", "/%20/", "%3b/", "///"}
	for _, s := range separators {
		out = append(out, "/v1"+s+"admin/users", "/v1/open/.."+s+"admin", "/v1/admin"+s+"users", "/v1/open"+s+"../admin")
	}
	names := []string{"admin", "Admin", "ADMIN", "%61dmin", "%41dmin", "a%64min", "admin.", "admin..", "admin%20", "%20admin", "admin%00", "admin%2e", "admin.json",
		"admin;x", "admin%3b", "admin%3f", "admin%23", "%2561dmin", "%ef%bd%81dmin", "adm%c4%b1n", "ADM%c4%b0N", "admin%09", "admin%0a", "admin%c2%a0", "admin+"}
	for _, s := range names {
		out = append(out, "/v1/"+s, "/v1/"+s+"/users")
	}
	return out
}

// TestPathsOfServers: whatever a request's path is, if the rules let it pass, then Go, Node, nginx and Python all read a
// path that the rules permit. The bytes of the path arrive as they were sent.
// Promise: documented-operations
func TestPathsOfServers(t *testing.T) {
	bites := map[string]int{}
	for name, addr := range map[string]string{
		"go": startPaths(t), "node": startNode(t), "nginx": startNginx(t),
		"python": start(t, []string{"/usr/bin/python3", "testdata/paths.py"}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(readingRules)}})
			r.upstreams.lead(80, addr)
			r.begin()
			passed, all := 0, pathSpellings()
			for _, p := range all {
				text, status := rawGet(t, r.http[0], p)
				for _, reading := range readingsOf(text, "reading ") {
					if !permitted(reading) {
						t.Errorf("%s passed, and is read as %q", p, reading)
					}
				}
				if status == http.StatusOK {
					passed++
				}
				// The same without the proxy shows that there was something to be confused by.
				text, _ = rawGet(t, addr, p)
				read := readingsOf(text, "reading ")
				if permitted(p) != slices.ContainsFunc(read, permitted) || slices.ContainsFunc(read, permitted) && slices.ContainsFunc(read, func(s string) bool { return !permitted(s) }) {
					bites[name]++
				}
			}
			if len(all) < 120 || passed < 20 || bites[name] < 5 {
				t.Errorf("%d spellings, of which %d passed, and %d are read in two ways", len(all), passed, bites[name])
			}
			t.Logf("%d spellings, of which %d passed, and %d are read in two ways", len(all), passed, bites[name])
		})
	}
}

// TestGraphQLOfServer: if a rule for queries lets a request pass, then it has no operation but queries in any way in which
// a server with graphql-js may take documents in.
// Promise: documented-operations
func TestGraphQLOfServer(t *testing.T) {
	addr := startNode(t)
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(readingRules)}})
	r.upstreams.lead(80, addr)
	r.begin()
	const js, form, gql, multi, plain = "application/json", "application/x-www-form-urlencoded", "application/graphql", "multipart/form-data; boundary=b", "text/plain"
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n--b--\r\n"
	}
	j := func(document string) string { return fmt.Sprintf("{\"query\":%q}", document) }
	rows := []struct{ query, kind, body string }{
		// These pass.
		{"", js, j("{ me }")}, {"", js, j("query { me }")}, {"", js, j("query Q($a: Int!) @live { me(id: $a) { name } }")},
		{"", js, j("{ a: me { ...F } b: me { ... on User { name } } } fragment F on User { name }")},
		{"", js, j("{ me @skip(if: true) { name } }")}, {"", js, j("{ me @include(if: $b) }")}, {"", js, j("query A { a } query B { b }")},
		{"", js, j(`{ me(text: "mutation { drop }") }`)}, {"", js, j(`{ me(text: """ mutation { drop } """) }`)}, {"", js, j("{ mutation { drop } }")},
		{"", js, j("# mutation { drop }\n{ me }")}, {"", js, j("query mutation { me }")}, {"", js, `[` + j("{ a }") + `,` + j("query { b }") + `]`},
		{"", js, `{"query":"{ me }","variables":{"query":"mutation { drop }"}}`}, {"query=%7Bme%7D", "", ""}, {"query=query+Q%7Bme%7D&operationName=Q", "", ""},
		{"", gql, "{ me }"}, {"", js, j("\ufeff{ me }")}, {"", js, j("{ me },,, ")},
		// These do not.
		{"", js, j("mutation { drop }")}, {"", js, j("mutation M { drop }")}, {"", js, j("mutation{drop}")}, {"", js, j("subscription { s }")},
		{"", js, j("{ me } mutation M { drop }")}, {"", js, j("query Q { me } mutation M { drop }")}, {"", js, `{"query":"query Q { me } mutation M { drop }","operationName":"M"}`},
		{"", js, j("{ me } # \r mutation M { drop }")}, {"", js, j("{ me } # \n mutation M { drop }")}, {"", js, j("{ me } # \u2028 mutation M { drop }")},
		{"", js, j(`{ me(a: """ \""" """) } mutation M { drop }`)}, {"", js, j(`{ me(a: "\\") } mutation M { drop } # "`)}, {"", js, j(`{ me(a: """\\""") } mutation M { drop } # """`)},
		{"", js, j(`{ me(a: "") } mutation M { drop } # ""`)}, {"", js, j(`{ me(a: """""") } mutation M { drop } # """`)}, {"", js, j("\ufeffmutation { drop }")},
		{"", js, j(",,,mutation,{drop}")}, {"", js, `{"query":"\u006dutation { drop }"}`}, {"", js, `{"\u0071uery":"mutation { drop }"}`},
		{"", js, `{"query":"{ me }","query":"mutation { drop }"}`}, {"", js, `{"query":"{ me }","Query":"mutation { drop }"}`}, {"", js, `{"query":["mutation { drop }"]}`},
		{"", js, `[` + j("{ a }") + `,` + j("mutation { drop }") + `]`}, {"", js, `[[` + j("mutation { drop }") + `]]`}, {"", js, `{"0":` + j("mutation { drop }") + `}`},
		{"", js, `{"id":"1"}`}, {"", js, `{"doc_id":"1","query":"{ me }"}`}, {"", js, `{"documentId":"1"}`}, {"", js, `{"query":"","extensions":{"persistedQuery":{"version":1,"sha256Hash":"x"}}}`},
		{"", js, `{"query":"{ me }","extensions":{"persistedQuery":{}}}`}, {"", js, `{"query":"{ me }","__proto__":{"query":"mutation { drop }"}}`}, {"", js, `{"operations":"{\"query\":\"mutation { drop }\"}"}`},
		{"query=mutation%7Bdrop%7D", "", ""}, {"query=%7Bme%7D&query=mutation%7Bdrop%7D", "", ""}, {"query=mutation%7Bdrop%7D", js, j("{ me }")}, {"query=%7Bme%7D", js, j("mutation { drop }")},
		{"Query=mutation%7Bdrop%7D", js, j("{ me }")}, {"query%5B%5D=mutation%7Bdrop%7D", js, j("{ me }")}, {"extensions=%7B%22persistedQuery%22%3A1%7D", "", ""}, {"id=1", js, j("{ me }")},
		{"doc_id=1", js, j("{ me }")}, {"documentId=1", "", ""}, {"queryId=1", js, j("{ me }")}, {"operations=" + url.QueryEscape(j("mutation{drop}")), js, j("{ me }")},
		{"", gql, "mutation { drop }"}, {"", gql, j("mutation { drop }")}, {"", form, "query=mutation%7Bdrop%7D"}, {"", form, "query=%7Bme%7D&query=mutation%7Bdrop%7D"}, {"", plain, "mutation { drop }"},
		{"", plain, j("mutation { drop }")}, {"", "", j("mutation { drop }")}, {"", multi, part("operations", j("mutation { drop }"))}, {"", multi, part("query", "mutation { drop }")},
		{"", "application/json; charset=utf-16", j("mutation { drop }")}, {"", js, j("type T { a: Int } mutation { drop }")}, {"", js, j("fragment F on T { a } mutation { drop }")},
		{"", js, j("query Q { me } query Q { me } mutation Q { drop }")}, {"", js, j(`query Q($a: String = "}") { me } mutation M { drop }`)},
	}
	passed, bites := 0, 0
	for _, row := range rows {
		method, target := http.MethodPost, "/graphql"
		if row.body == "" {
			method = http.MethodGet
		}
		if row.query != "" {
			target += "?" + row.query
		}
		ask := func(addr string) (string, int) {
			head := method + " " + target + " HTTP/1.1\r\nHost: " + demoHost + "\r\nConnection: close\r\n"
			if row.kind != "" {
				head += "Content-Type: " + row.kind + "\r\n"
			}
			return rawSend(t, addr, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(row.body), row.body))
		}
		other := func(o string) bool { return o != "query" }
		direct, _ := ask(addr)
		if slices.ContainsFunc(readingsOf(direct, "operation "), other) {
			bites++
		}
		text, status := ask(r.http[0])
		if status != http.StatusOK {
			continue
		}
		passed++
		if ops := readingsOf(text, "operation "); len(ops) == 0 || slices.ContainsFunc(ops, other) {
			t.Errorf("%s %s %s passed, and a server may run %q", target, row.kind, row.body, ops)
		}
	}
	if len(rows) < 60 || passed != 19 || bites < 35 {
		t.Errorf("%d requests, of which %d passed, and %d have other operations", len(rows), passed, bites)
	}
}

// rawGet sends a GET of a path as it is, and returns the answer.
func rawGet(t *testing.T, addr, p string) (string, int) {
	t.Helper()
	return rawSend(t, addr, "GET "+p+" HTTP/1.1\r\nHost: "+demoHost+"\r\nConnection: close\r\n\r\n")
}

func rawSend(t *testing.T, addr, request string) (string, int) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	check(t, err)
	defer c.Close()
	_, err = io.WriteString(c, request)
	check(t, err)
	all, _ := io.ReadAll(c)
	head, text, _ := strings.Cut(string(all), "\r\n\r\n")
	status := 0
	_, _ = fmt.Sscanf(head, "HTTP/1.1 %d", &status)
	return text, status
}

// readingsOf are the lines of an answer that begin so.
func readingsOf(text, prefix string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			out = append(out, strings.TrimRight(rest, "\r\n"))
		}
	}
	return out
}

// startPaths is Go's server: the path that a handler sees, and those that its router takes.
func startPaths(t *testing.T) string {
	mux := http.NewServeMux()
	admin := false
	mux.HandleFunc("/v1/admin/", func(http.ResponseWriter, *http.Request) { admin = true })
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		fmt.Fprintf(w, "reading %s\nreading %s\n", q.URL.Path, q.URL.EscapedPath())
		probe := httptest.NewRecorder()
		admin = false
		mux.ServeHTTP(probe, q)
		if to := probe.Header().Get("Location"); to != "" {
			fmt.Fprintf(w, "reading %s\n", to)
		}
		if admin {
			fmt.Fprintln(w, "reading /v1/admin")
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func startNode(t *testing.T) string {
	root := testkit.RootDir(t)
	modules, err := testkit.InstallNPM(t.Context(), root, filepath.Join(root, ".tools", "graphql"), "graphql@16.15.0")
	if err != nil {
		testkit.SkipBecause(t, err.Error())
	}
	t.Setenv("NODE_PATH", modules)
	return start(t, []string{"node", "testdata/requests.cjs"})
}

// startNginx is nginx as it comes, and as one that keeps empty segments.
func startNginx(t *testing.T) string {
	program, err := exec.LookPath("nginx")
	if err != nil {
		testkit.SkipBecause(t, "nginx is not installed")
	}
	dir := t.TempDir()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	addr := l.Addr().String()
	l.Close()
	temp := ""
	for _, s := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += s + "_temp_path " + dir + "/" + s + ";\n"
	}
	conf := "daemon off;\nmaster_process off;\npid " + dir + "/pid;\nerror_log stderr crit;\nevents {}\nhttp {\naccess_log off;\n" + temp +
		"server {\nlisten " + addr + ";\nlocation / { return 200 \"reading $uri\\n\"; }\n" +
		"location /v1/admin { return 200 \"reading $uri\\nreading /v1/admin\\n\"; }\n}\n}\n"
	check(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(conf), 0o600))
	cmd := exec.CommandContext(t.Context(), program, "-p", dir, "-c", filepath.Join(dir, "nginx.conf")) //nolint:gosec // fixed
	cmd.Stderr = os.Stderr
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	testkit.WaitFor(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return addr
}
