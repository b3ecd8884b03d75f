package catalog_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// rsaPEM is a private key in PEM, made once.
var rsaPEM = sync.OnceValue(func() string {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
})

// minting loads one API with one credential, given as JSON, and files beside it.
func minting(t *testing.T, domain, credential string, files map[string]string) (catalog.Credential, catalog.Problems) {
	t.Helper()
	tree := map[string]string{"acme/config.json": fmt.Sprintf(
		`{"description": "x", "domains": [%q], "credentials": {"ACME_TOKEN": %s}}`, domain, credential)}
	for name, data := range files {
		tree["acme/"+name] = data
	}
	c, problems := catalog.Load(writeTree(t, tree), catalog.Options{})
	if a := c.API("acme"); a != nil {
		return a.Credentials[0], problems
	}
	return catalog.Credential{}, problems
}

// minted is minting for a credential that must load without a problem.
func minted(t *testing.T, domain, credential string, files map[string]string) catalog.Credential {
	t.Helper()
	c, problems := minting(t, domain, credential, files)
	if len(problems) > 0 {
		t.Fatalf("%s\nproblems:\n%s", credential, problems)
	}
	return c
}

func TestProviders(t *testing.T) {
	for name, want := range map[string]struct{ token, redirect, params string }{
		"google":    {"https://oauth2.googleapis.com/token", "http://127.0.0.1:9/callback", "map[access_type:offline prompt:consent]"},
		"microsoft": {"https://login.microsoftonline.com/common/oauth2/v2.0/token", "http://localhost:9/callback", "map[]"},
		"github":    {"https://github.com/login/oauth/access_token", "http://127.0.0.1:9/callback", "map[]"},
		"slack":     {"https://slack.com/api/oauth.v2.access", "http://localhost:9/callback", "map[]"},
		"linear":    {"https://api.linear.app/oauth/token", "http://localhost:9/callback", "map[]"},
		"notion":    {"https://api.notion.com/v1/oauth/token", "http://localhost:9/callback", "map[owner:user]"},
		"atlassian": {"https://auth.atlassian.com/oauth/token", "http://localhost:9/callback", "map[audience:api.atlassian.com prompt:consent]"},
	} {
		o := minted(t, "api.example.com", fmt.Sprintf(`{"oauth2": {"provider": %q, "client_id": "id",
			"client_secret": "hunter2-hunter2"}}`, name), nil).Mint.(*catalog.OAuth2)
		if o.TokenURL != want.token || o.AuthURL == "" || o.RedirectURI(9) != want.redirect ||
			fmt.Sprint(o.Params) != want.params || o.Grant != catalog.GrantRefreshToken || o.Basic != (name == "notion") {
			t.Errorf("%s: %+v", name, o)
		}
		if comma := name == "slack" || name == "linear"; (o.ScopeSeparator == ",") != comma {
			t.Errorf("%s: scopes are separated by %q", name, o.ScopeSeparator)
		}
		if o.ClientSecret.Reveal() != "hunter2-hunter2" {
			t.Errorf("%s: the secret is not the one given", name)
		}
	}
}

// TestProviderOverrides: what config.json says counts, and the rest is the provider's.
func TestProviderOverrides(t *testing.T) {
	o := minted(t, "api.example.com", `{"oauth2": {"provider": "microsoft", "tenant": "example.com", "client_id": "id",
		"scopes": ["Mail.Read"], "device_url": "https://device.example.com/d", "redirect_port": 9000,
		"params": {"prompt": "select_account"}}}`, nil).Mint.(*catalog.OAuth2)
	if o.TokenURL != "https://login.microsoftonline.com/example.com/oauth2/v2.0/token" ||
		o.DeviceURL != "https://device.example.com/d" || o.RedirectPort != 9000 || o.Params["prompt"] != "select_account" ||
		!slices.Equal(o.Scopes, []string{"Mail.Read", "offline_access"}) {
		t.Errorf("%+v", o)
	}
	app := minted(t, "api.example.com", `{"oauth2": {"provider": "microsoft", "grant": "client_credentials", "client_id": "id",
		"client_secret": "hunter2-hunter2", "scopes": ["https://graph.microsoft.com/.default"]}}`, nil)
	if o := app.Mint.(*catalog.OAuth2); app.LoginClient() != nil || slices.Contains(o.Scopes, "offline_access") {
		t.Errorf("a client without users: %+v", o)
	}
}

// kinds is a good credential of each kind, with a text that is in its secret.
func kinds(t *testing.T) map[string]struct{ domain, credential, hidden string } {
	t.Helper()
	lines := strings.Split(rsaPEM(), "\n")
	key, err := json.Marshal(rsaPEM())
	if err != nil {
		t.Fatal(err)
	}
	sa, err := json.Marshal(fmt.Sprintf(`{"type": "service_account", "client_email": "a@b.iam.gserviceaccount.com",
		"private_key_id": "1", "private_key": %s, "token_uri": "https://oauth2.googleapis.com/token"}`, key))
	if err != nil {
		t.Fatal(err)
	}
	const h = "hunter2-hunter2"
	return map[string]struct{ domain, credential, hidden string }{
		"oauth2": {"a.example.com", `{"oauth2": {"provider": "google", "client_id": "id", "client_secret": "` + h + `"}}`, h},
		"github_app": {"a.example.com", `{"github_app": {"app_id": 12, "installation_id": "34", "key": ` + string(key) +
			`, "repositories": ["site"], "permissions": {"issues": "write"}}}`, lines[1]},
		"google": {"a.example.com", `{"google": {"key": ` + string(sa) + `, "scopes": ["https://a.example/b"]}}`, lines[2]},
		"aws": {"s3.eu-central-1.amazonaws.com", `{"aws": {"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "` + h +
			`", "region": "eu-central-1"}}`, h},
		"hmac": {"a.example.com", `{"hmac": {"key": "` + h + `", "message": "{timestamp}{body}", "headers": {"X-Sign": "{signature:hex}"}}}`, h},
	}
}

// TestKinds: each kind loads, lists its secrets, and shows none of them in whatever way it is printed.
func TestKinds(t *testing.T) {
	for kind, k := range kinds(t) {
		c := minted(t, k.domain, k.credential, nil)
		if c.Mint.Kind() != kind || !c.Value.IsEmpty() {
			t.Errorf("%s: kind %q, value empty: %t", kind, c.Mint.Kind(), c.Value.IsEmpty())
		}
		if !slices.ContainsFunc(c.AllSecrets(), func(s secret.Value) bool { return s.Reveal() == k.hidden }) {
			t.Errorf("%s: its secret is not listed for scrubbing", kind)
		}
		for _, s := range c.AllSecrets() {
			if strings.Contains(s.Reveal(), "\n") || strings.Contains(s.Reveal(), "PRIVATE KEY") {
				t.Errorf("%s: a secret of more than one line", kind)
			}
		}
		asJSON, err := json.Marshal(c)
		for _, text := range []string{
			fmt.Sprintf("%v %+v %#v", c, c, c), fmt.Sprintf("%+v %#v", c.Mint, c.Mint), string(asJSON), c.MintDigest(),
		} {
			if strings.Contains(text, k.hidden) || err != nil {
				t.Errorf("%s: %v, printed: %s", kind, err, text)
			}
		}
	}
}

func TestSources(t *testing.T) {
	f := minted(t, "vault.example.com", `{"ttl": "15m", "fetch": {"url": "https://vault.example.com/v1", "json": "/data/key",
		"headers": {"Accept": "application/json", "X-Vault-Namespace": "TEAM"}}}`, nil).Mint.(*catalog.Fetch)
	if f.Method != "GET" || f.TTL.Duration().Minutes() != 15 || f.Headers["Accept"] != "application/json" || f.Pointer != "/data/key" {
		t.Errorf("%+v", f)
	}
	c := minted(t, "a.example.com", `{"command": ["op", "read", "op://Work/Stripe/key"]}`, nil).Mint.(*catalog.Command)
	if len(c.Args) != 3 || c.TTL.Duration().Minutes() != 5 {
		t.Errorf("%+v", c)
	}
	if s := minted(t, "a.example.com", `{"file": "db.json", "json": "/password"}`, map[string]string{
		"db.json": `{"password": "hunter2-hunter2"}`}); s.Value.Reveal() != "hunter2-hunter2" || s.Mint != nil {
		t.Errorf("a file with a JSON pointer: %+v", s)
	}
}

// TestFileIsReadAgain: a file with a lifetime is read by whoever asks for it, under the rules for what config.json names.
func TestFileIsReadAgain(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"acme/config.json": `{"description": "x", "domains": ["a.example.com"],
			"credentials": {"ACME_TOKEN": {"file": "db.json", "json": "/password", "ttl": "10s"}}}`,
		"acme/db.json": `{"password": "hunter2-hunter2"}`,
		"other":        "hunter2-outside",
	})
	c := clean(t, dir, nil)
	f := c.API("acme").Credentials[0].Mint.(*catalog.File)
	if v, err := f.ReadCredential(dir); err != nil || v.Reveal() != "hunter2-hunter2" {
		t.Fatalf("%v", err)
	}
	write(t, dir, "acme/db.json", `{"password": "hunter3-hunter3"}`)
	if v, err := f.ReadCredential(dir); err != nil || v.Reveal() != "hunter3-hunter3" {
		t.Errorf("after a change: %v", err)
	}
	if next, problems := catalog.Load(dir, catalog.Options{Previous: c}); next.Version() != c.Version() || len(problems) > 0 {
		t.Errorf("a rotation is a new version of the catalog: %s", problems)
	}
	for _, bad := range []string{"", `{"password": "short"}`, `{"password": "hunter2\nhunter2"}`, `{"pass`, `hunter2-hunter2`} {
		write(t, dir, "acme/db.json", bad)
		if v, err := f.ReadCredential(dir); err == nil || !v.IsEmpty() || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	outside := *f
	outside.Path, outside.Pointer = "../../"+"x", ""
	if _, err := outside.ReadCredential(dir); err == nil {
		t.Error("a path that leads out of apis/ was read")
	}
}

// TestMintVersions: everything in a Mint makes a new version and another value; only what decides whose token it is
// makes another digest.
func TestMintVersions(t *testing.T) {
	load := func(fields string) (*catalog.Catalog, catalog.Credential) {
		c := clean(t, writeTree(t, map[string]string{"a/config.json": `{"description": "x", "domains": ["a.example.com"],
			"credentials": {"ACME_TOKEN": {"oauth2": {"provider": "google"` + fields + `}}}}`}), nil)
		return c, c.API("a").Credentials[0]
	}
	const before = `, "client_id": "id", "client_secret": "hunter2-hunter2", "scopes": ["a", "b"]`
	c, old := load(before)
	if c2, same := load(before); c.Version() != c2.Version() || !old.IsSame(same) || old.MintDigest() != same.MintDigest() {
		t.Error("the same configuration is another")
	}
	for fields, newDigest := range map[string]bool{
		`, "client_id": "id", "client_secret": "hunter3-hunter3", "scopes": ["a", "b"]`:                           false,
		`, "client_id": "id", "client_secret": "hunter2-hunter2", "scopes": ["a", "b"], "redirect_port": 9000`:    false,
		`, "client_id": "id2", "client_secret": "hunter2-hunter2", "scopes": ["a", "b"]`:                          true,
		`, "client_id": "id", "client_secret": "hunter2-hunter2", "scopes": ["a"]`:                                true,
		`, "client_id": "id", "client_secret": "hunter2-hunter2", "scopes": ["a", "b"], "params": {"login": "x"}`: true,
	} {
		c2, now := load(fields)
		if c.Version() == c2.Version() || old.IsSame(now) || (old.MintDigest() != now.MintDigest()) != newDigest {
			t.Errorf("%s: version is new: %t, same: %t, digest is new: %t", fields, c.Version() != c2.Version(), old.IsSame(now),
				old.MintDigest() != now.MintDigest())
		}
	}
}

// TestDigestIsForGood: stored tokens are found by it after an update of CodeForge.
func TestDigestIsForGood(t *testing.T) {
	o := &catalog.OAuth2{Grant: "refresh_token", TokenURL: "https://a.example/t", ClientID: "id", Scopes: []string{"a"}}
	if got, want := (catalog.Credential{Mint: o}).MintDigest(), "df20eb987a919de3"; !strings.HasPrefix(got, want) {
		t.Errorf("%s; want %s...: logins would be lost", got, want)
	}
}

// TestInternal: code finds no API at the hosts of an internal one, not even with YOLO_MODE, but its credentials are
// there, and so is what they are fetched with.
func TestInternal(t *testing.T) {
	c := clean(t, writeTree(t, map[string]string{
		"vault/config.json": `{"description": "x", "domains": ["vault.example.com:8200"], "internal": true,
			"credentials": {"VAULT_TOKEN": "hunter2-hunter2"}}`,
		"acme/config.json": `{"description": "x", "domains": ["a.example.com"], "credentials": {"ACME_TOKEN": {"fetch":
			{"url": "https://vault.example.com:8200/v1", "headers": {"X-Vault-Token": "VAULT_TOKEN"}, "json": "/data"}}}}`,
	}), nil)
	h, err := catalog.ParseHost("vault.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.ListHolders(h.AtPort(8200)); len(got) != 0 || !c.MayHold(h.AtPort(8200)) || len(c.ListPorts()) != 0 {
		t.Errorf("code reaches %d APIs there, held: %t, open ports: %v", len(got), c.MayHold(h.AtPort(8200)), c.ListPorts())
	}
	if len(c.AllSecrets()) != 1 || c.AllSecrets()[0].Name != "VAULT_TOKEN" {
		t.Errorf("secrets: %+v", c.AllSecrets())
	}
	if uses := c.API("acme").Credentials[0].Mint.(*catalog.Fetch).Uses; !slices.Equal(uses, []string{"VAULT_TOKEN"}) {
		t.Errorf("uses %v", uses)
	}
}

// TestMintedProblemsHideValues: a secret of a kind in any of its fields, or a broken key, is in no message.
func TestMintedProblemsHideValues(t *testing.T) {
	const value = "sk-live/51-a+secret-hunter2"
	_, kinds := catalog.FieldNames()
	for kind, fields := range kinds {
		for _, f := range fields {
			for _, form := range []string{
				fmt.Sprintf("%q", value), fmt.Sprintf("[%q]", value), fmt.Sprintf("{%q: %q}", value, value),
				fmt.Sprintf(`{"file": %q}`, value), fmt.Sprintf(`{"env": %q}`, value), fmt.Sprintf(`{"value": %q}`, value),
				fmt.Sprintf(`{"value": "{\"type\": \"service_account\", \"client_email\": \"a@b\", \"private_key\": %s}", "json": %[1]q}`, value),
			} {
				_, problems := minting(t, "a.example.com", fmt.Sprintf(`{%q: {%q: %s}}`, kind, f, form), nil)
				if len(problems.Errors()) == 0 {
					t.Errorf("%s.%s: %s: loads", kind, f, form)
				}
				if said := listing(problems); strings.Contains(said, value) || strings.Contains(said, "hunter2") {
					t.Errorf("%s.%s: %s: told: %s", kind, f, form, said)
				}
			}
		}
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	other := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	for name, key := range map[string]string{
		"another algorithm": other, "cut off": rsaPEM()[:600], "a line lost": strings.Replace(rsaPEM(), "\n", "", 3),
		"one letter changed": strings.Replace(rsaPEM(), "A", "B", 4), "encrypted": strings.ReplaceAll(other, "PRIVATE", "ENCRYPTED PRIVATE"),
	} {
		_, problems := minting(t, "a.example.com",
			`{"github_app": {"app_id": "1", "installation_id": "2", "key": {"file": "app.pem"}}}`, map[string]string{"app.pem": key})
		if len(problems.Errors()) == 0 {
			t.Errorf("%s: loads", name)
		}
		for line := range strings.Lines(key) {
			if line = strings.TrimSpace(line); len(line) > 8 && strings.Contains(listing(problems), line) && !strings.HasPrefix(line, "---") {
				t.Errorf("%s: told: %s", name, problems)
			}
		}
	}
}

// TestServer: where doctor looks whether a credential can be obtained.
func TestServer(t *testing.T) {
	for want, m := range map[string]catalog.Mint{
		"":                       nil,
		"oauth2.googleapis.com":  &catalog.OAuth2{TokenURL: "https://oauth2.googleapis.com/token"},
		"mcp.linear.app":         &catalog.OAuth2{Resource: "https://mcp.linear.app/mcp"},
		"vault.example.com:8200": &catalog.Fetch{URL: "https://vault.example.com:8200/v1"},
		"api.github.com":         &catalog.GitHubApp{BaseURL: "https://api.github.com"},
	} {
		if got := (catalog.Credential{Mint: m}).MintHost(); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
	if got := (catalog.Credential{Mint: &catalog.Command{}}).MintHost(); got != "" {
		t.Errorf("a command: %q", got)
	}
}

func TestAWSHost(t *testing.T) {
	for name, want := range map[string]string{
		"s3.eu-central-1.amazonaws.com":                   "s3 eu-central-1",
		"photos.s3.eu-central-1.amazonaws.com":            "s3 eu-central-1",
		"a.b.s3.eu-central-1.amazonaws.com":               "s3 eu-central-1",
		"s3.dualstack.us-west-2.amazonaws.com":            "s3 us-west-2",
		"photos.s3.dualstack.us-west-2.amazonaws.com":     "s3 us-west-2",
		"s3.amazonaws.com":                                "s3 ",
		"s3-eu-west-1.amazonaws.com":                      "s3 eu-west-1",
		"s3-fips.us-gov-west-1.amazonaws.com":             "s3 us-gov-west-1",
		"dynamodb.ap-southeast-2.amazonaws.com":           "dynamodb ap-southeast-2",
		"streams.dynamodb.eu-west-1.amazonaws.com":        "dynamodb eu-west-1",
		"x1.execute-api.eu-west-1.amazonaws.com":          "execute-api eu-west-1",
		"search-x.eu-west-1.es.amazonaws.com":             "es eu-west-1",
		"iam.amazonaws.com":                               "iam ",
		"sts.cn-north-1.amazonaws.com.cn":                 "sts cn-north-1",
		"lambda.us-east-1.api.aws":                        "lambda us-east-1",
		"abc.lambda-url.us-east-1.on.aws":                 "lambda us-east-1",
		"email.eu-west-1.amazonaws.com":                   "ses eu-west-1",
		"bedrock-runtime.eu-west-1.amazonaws.com":         "bedrock eu-west-1",
		"runtime.sagemaker.eu-west-1.amazonaws.com":       "sagemaker eu-west-1",
		"memory-db.eu-west-1.amazonaws.com":               "memorydb eu-west-1",
		"data-ats.iot.eu-west-1.amazonaws.com":            "iotdata eu-west-1",
		"data.jobs.iot.eu-west-1.amazonaws.com":           "iot-jobs-data eu-west-1",
		"123456789012.s3-control.eu-west-1.amazonaws.com": "s3 eu-west-1",
		"x1.appsync-api.eu-west-1.amazonaws.com":          "appsync eu-west-1",
		"bedrock-data-automation.eu-west-1.amazonaws.com": "bedrock eu-west-1",
		"bedrock-agentcore-control.eu-west-1.api.aws":     "bedrock-agentcore eu-west-1",
		"doc-x.eu-west-1.cloudsearch.amazonaws.com":       "cloudsearch eu-west-1",
		"oidc.eu-west-1.amazonaws.com":                    "sso-oauth eu-west-1",
		"iot.eu-west-1.amazonaws.com":                     "iot eu-west-1",
		"sms-voice.pinpoint.eu-west-1.amazonaws.com":      "sms-voice eu-west-1",
		"eu-west-1.amazonaws.com":                         "no",
		"amazonaws.com":                                   "no",
		"s3.eu-central-1.amazonaws.com.evil.example":      "no",
		"evilamazonaws.com":                               "no",
		"minio.lan":                                       "no",
	} {
		service, region, ok := catalog.AWSHost(name)
		got := service + " " + region
		if !ok {
			got = "no"
		}
		if got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
}
