package world

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
)

// API is one folder of apis/.
type API struct {
	Name string
	// Config is config.json. A Text replaces it, for files that do not parse.
	Config map[string]any
	Text   string
	Types  string
	// Operations is operations.jsonl.
	Operations string
}

// in is a credential with surfaces other than header.
func in(c *canary.Canary, surfaces ...string) map[string]any {
	return map[string]any{"value": c.Value(), "in": surfaces}
}

// tokens are the token names of Standard's APIs.
var tokens = []string{
	"HTTPBIN_TOKEN", "HTTPBIN_HARD", "HTTPBIN_QUERY", "HTTPBIN_ANYQUERY", "HTTPBIN_BODY", "HTTPBIN_ANYBODY", "HTTPBIN_PATH", "HTTPBIN_NAMED",
	"OTHER_TOKEN", "STRICT_TOKEN", "ALLOWED_TOKEN", "PLAIN_TOKEN", "WILD_TOKEN", "SHARED_A_TOKEN", "SHARED_B_TOKEN", "CERTS_TOKEN",
	"FORBIDDEN_TOKEN", "OFF_TOKEN", "DOCUMENTED_TOKEN", "RULED_TOKEN", "PORTS_TOKEN", "DEVPORT_TOKEN", "ALTPORT_TOKEN", "PLAINPORT_TOKEN",
}

// Canaries makes a credential for each token name of Standard. HTTPBIN_HARD has characters that encoders treat
// differently, and HTTPBIN_NAMED has percent escapes.
func Canaries() map[string]*canary.Canary {
	out := map[string]*canary.Canary{}
	for _, name := range tokens {
		out[name] = canary.New(name)
	}
	out["HTTPBIN_HARD"] = canary.NewHard("HTTPBIN_HARD")
	out["HTTPBIN_NAMED"] = canary.NewEscaped("HTTPBIN_NAMED")
	return out
}

// documented are the operations of the API of that name.
const documented = `{"format":1,"server":"https://c.wild.test/anything","operations":3,"types":0}
{"m":"GET","p":"/refunds","s":"List refunds"}
{"m":"POST","p":"/refunds","s":"Create a refund"}
{"m":"GET","p":"/refunds/{id}","s":"Retrieve a refund"}
`

// Standard is the set of APIs that most tests use. private is the range of the upstream's address, ca the path of its
// certificate authority as the proxy sees it.
func Standard(c map[string]*canary.Canary, private, ca string) []API {
	own := func(more map[string]any) map[string]any {
		out := map[string]any{"allow_private": []string{private}, "ca_file": ca}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	return []API{
		{Name: "httpbin", Types: "/** Answers what it was asked. */\nexport interface Anything { url: string }\n", Config: own(map[string]any{
			"description": "go-httpbin, and a hostile server beside it", "domains": []string{upstream.HTTPBin, upstream.H2},
			"compress": true, // for the attacks with codings; compressed responses of other APIs are refused
			"credentials": map[string]any{
				"HTTPBIN_TOKEN": c["HTTPBIN_TOKEN"].Value(), "HTTPBIN_HARD": c["HTTPBIN_HARD"].Value(),
				"HTTPBIN_QUERY":    in(c["HTTPBIN_QUERY"], "query:key"),
				"HTTPBIN_ANYQUERY": in(c["HTTPBIN_ANYQUERY"], "query"),
				"HTTPBIN_BODY":     in(c["HTTPBIN_BODY"], "body:client_secret"),
				"HTTPBIN_ANYBODY":  in(c["HTTPBIN_ANYBODY"], "body"),
				"HTTPBIN_PATH":     in(c["HTTPBIN_PATH"], "path"),
				"HTTPBIN_NAMED":    in(c["HTTPBIN_NAMED"], "header:X-Api-Key", "cookie:session"),
			},
		})},
		{Name: "other", Config: own(map[string]any{
			"description": "another API", "domains": []string{upstream.Other}, "credentials": map[string]any{"OTHER_TOKEN": c["OTHER_TOKEN"].Value()},
		})},
		{Name: "strict", Config: own(map[string]any{
			"description": "reading only", "domains": []string{upstream.Strict}, "credentials": map[string]any{"STRICT_TOKEN": c["STRICT_TOKEN"].Value()},
			"restricted_methods": []string{"POST", "PUT", "PATCH", "DELETE"},
		})},
		{Name: "allowed", Config: own(map[string]any{
			"description": "two methods only", "domains": []string{"b.wild.test"}, "credentials": map[string]any{"ALLOWED_TOKEN": c["ALLOWED_TOKEN"].Value()},
			"allowed_methods": []string{"GET", "HEAD"},
		})},
		{Name: "documented", Operations: documented, Config: own(map[string]any{
			"description": "three operations only", "domains": []string{"c.wild.test"}, "credentials": map[string]any{"DOCUMENTED_TOKEN": c["DOCUMENTED_TOKEN"].Value()},
			"operations": map[string]any{"only": true},
		})},
		{Name: "ruled", Config: own(map[string]any{
			"description": "rules and a limit", "limits": map[string]any{"sum": map[string]any{"path": "/anything/limited", "field": "amount", "max": "100/d"}},
			"domains": []string{"d.wild.test"}, "credentials": map[string]any{"RULED_TOKEN": c["RULED_TOKEN"].Value()},
			"rules": []any{
				map[string]any{"path": "/anything/admin/**", "then": "refuse"},
				map[string]any{"path": "/anything/held/**", "then": "approve", "by": "any"},
				map[string]any{"methods": []string{"POST"}, "path": "/anything/refunds", "body": map[string]any{"amount": map[string]any{"max": 5000}}, "then": "allow"},
				map[string]any{"methods": []string{"POST"}, "path": "/anything/limited", "then": "allow"},
				map[string]any{"path": "/anything/graphql", "graphql": "query", "then": "allow"},
				map[string]any{"methods": []string{"GET"}, "path": "/anything/**", "then": "allow"},
			},
		})},
		{Name: "plain", Config: own(map[string]any{
			"description": "plain HTTP", "domains": []string{upstream.Plain}, "credentials": map[string]any{"PLAIN_TOKEN": c["PLAIN_TOKEN"].Value()},
			"allow_http": true,
		})},
		{Name: "wild", Config: own(map[string]any{
			"description": "one label", "domains": []string{"*.wild.test"}, "compress": true, "credentials": map[string]any{"WILD_TOKEN": c["WILD_TOKEN"].Value()},
		})},
		{Name: "shared-a", Config: own(map[string]any{
			"description": "first account", "domains": []string{upstream.Shared}, "credentials": map[string]any{"SHARED_A_TOKEN": c["SHARED_A_TOKEN"].Value()},
			"restricted_methods": []string{"DELETE"},
		})},
		{Name: "shared-b", Config: own(map[string]any{
			"description": "second account", "domains": []string{upstream.Shared}, "credentials": map[string]any{"SHARED_B_TOKEN": c["SHARED_B_TOKEN"].Value()},
		})},
		{Name: "certs", Config: own(map[string]any{
			"description": "bad certificates", "domains": []string{upstream.BadCA, upstream.Wrong, upstream.Expired},
			"credentials": map[string]any{"CERTS_TOKEN": c["CERTS_TOKEN"].Value()},
		})},
		{Name: "forbidden", Config: own(map[string]any{
			"description": "names that lead inside", "domains": append(upstream.ForbiddenNames(), upstream.Rebind),
			"credentials": map[string]any{"FORBIDDEN_TOKEN": c["FORBIDDEN_TOKEN"].Value()},
			// These ranges include the network of the proxy and slots, and a metadata service, which must stay closed.
			"allow_private": []string{private, "10.64.0.0/11", "fd00:ec2::/48"},
		})},
		{Name: "ports", Config: own(map[string]any{
			"description": "at 443 and 80", "domains": []string{upstream.Ports}, "credentials": map[string]any{"PORTS_TOKEN": c["PORTS_TOKEN"].Value()},
		})},
		{Name: "ports-dev", Config: own(map[string]any{
			"description": "at 3000", "domains": []string{upstream.Ports + ":3000"}, "credentials": map[string]any{"DEVPORT_TOKEN": c["DEVPORT_TOKEN"].Value()},
			"restricted_methods": []string{"DELETE"},
		})},
		{Name: "ports-alt", Config: own(map[string]any{
			"description": "at 3001", "domains": []string{upstream.Ports + ":3001"}, "credentials": map[string]any{"ALTPORT_TOKEN": c["ALTPORT_TOKEN"].Value()},
		})},
		{Name: "ports-plain", Config: own(map[string]any{
			"description": "at 3002, over plain HTTP", "domains": []string{upstream.Ports + ":3002"}, "allow_http": true,
			"credentials": map[string]any{"PLAINPORT_TOKEN": c["PLAINPORT_TOKEN"].Value()},
		})},
		{Name: "off", Config: own(map[string]any{
			"description": "switched off", "domains": []string{"off.test"}, "credentials": map[string]any{"OFF_TOKEN": c["OFF_TOKEN"].Value()},
			"active": false,
		})},
	}
}

// WriteAPIs writes folders below dir. The files are private, like those of a user.
func WriteAPIs(dir string, apis []API) error {
	for _, a := range apis {
		folder := filepath.Join(dir, a.Name)
		if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // the files below are private
			return err
		}
		text := []byte(a.Text)
		if a.Text == "" {
			var err error
			if text, err = json.MarshalIndent(a.Config, "", "  "); err != nil {
				return fmt.Errorf("writing %s: %w", a.Name, err)
			}
		}
		if err := os.WriteFile(filepath.Join(folder, "config.json"), text, 0o600); err != nil {
			return err
		}
		for file, text := range map[string]string{"types.d.ts": a.Types, "operations.jsonl": a.Operations} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil { //nolint:gosec // public
				return err
			}
		}
	}
	return nil
}
