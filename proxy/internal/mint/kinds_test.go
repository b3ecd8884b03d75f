package mint

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/sigv4"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
)

// rsaKey is made once.
var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func pemOf(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// claims checks a token's signature, and returns its header and claims.
func claims(t *testing.T, token string, public crypto.PublicKey) (header, body map[string]any) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token of %d parts", len(parts))
	}
	var raw [3][]byte
	for i, p := range parts {
		var err error
		if raw[i], err = base64.RawURLEncoding.DecodeString(p); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(public.(*rsa.PublicKey), crypto.SHA256, sum[:], raw[2]); err != nil {
		t.Fatalf("the signature of %s: %v", token, err)
	}
	if json.Unmarshal(raw[0], &header) != nil || json.Unmarshal(raw[1], &body) != nil {
		t.Fatal("not JSON")
	}
	return header, body
}

func TestJWT(t *testing.T) {
	key := rsaKey()
	token, err := signJWT(secret.New(pemOf(t, key)), "kid-1", map[string]any{"iss": "x"})
	if err != nil {
		t.Fatal(err)
	}
	header, body := claims(t, token, key.Public())
	if header["alg"] != "RS256" || header["kid"] != "kid-1" || body["iss"] != "x" {
		t.Fatalf("%v %v", header, body)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "x", "-----BEGIN PRIVATE KEY-----\nhunter2hunter2\n-----END PRIVATE KEY-----\n", pemOf(t, ec)} {
		if token, err := signJWT(secret.New(bad), "", nil); asError("X", err).Detail != detailKey {
			t.Errorf("%q: %q, %v", bad, token, err)
		}
	}
}

// server answers in place of all servers.
type server struct {
	answer func(*http.Request, string) (int, string)
	seen   []*http.Request
	wants  []upstream.Want
}

func (s *server) CheckTarget(context.Context, upstream.Want, *url.URL) error { return nil }

func (s *server) RoundTrip(req *http.Request, w upstream.Want) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		data, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		body = string(data)
	}
	s.seen, s.wants = append(s.seen, req), append(s.wants, w)
	status, text := s.answer(req, body)
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), Request: req}, nil
}

// minter is one of a catalog of the given files, with its clock at now.
func minter(t *testing.T, s *server, files map[string]string) (m *Minter, c *catalog.Catalog, dir string, logged *testkit.Buffer) {
	t.Helper()
	dir = t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, problems := catalog.Load(dir, catalog.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	logged = &testkit.Buffer{}
	m = New(Config{Transport: s, Values: renewedvalues.New(nil), Dir: filepath.Join(t.TempDir(), "tokens"), APIs: dir,
		UserAgent: "test", Log: slog.New(slog.NewTextHandler(logged, nil))})
	t.Cleanup(m.Close)
	if err := m.Configure(c); err != nil {
		t.Fatal(err)
	}
	return m, c, dir, logged
}

// value obtains the credential of that name.
func value(t *testing.T, m *Minter, name string) (string, error) {
	t.Helper()
	c, api := m.findCredential(name)
	if api == nil {
		t.Fatalf("no credential %s", name)
	}
	return m.ObtainValue(t.Context(), c)
}

// hidden reports whether nothing of a secret is in an error, in the log and in what is listed.
func hidden(t *testing.T, m *Minter, logged *testkit.Buffer, err error, secrets ...string) {
	t.Helper()
	listed, jsonErr := json.Marshal(m.ListCredentials())
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	for _, text := range []string{fmt.Sprint(err), fmt.Sprintf("%+v", err), logged.String(), string(listed)} {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("%q is in %s", s, text)
			}
		}
	}
}

func config(t *testing.T, domain, credentials string) string {
	t.Helper()
	return fmt.Sprintf(`{"description": "x", "domains": [%q], "credentials": %s}`, domain, credentials)
}

// TestGitHubApp: the request is the one of GitHub's documentation, and so is the answer.
func TestGitHubApp(t *testing.T) {
	ends := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	s := &server{answer: func(req *http.Request, body string) (int, string) {
		_, c := claims(t, strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "), rsaKey().Public())
		age := time.Since(time.Unix(int64(c["iat"].(float64)), 0))
		life := time.Duration(c["exp"].(float64)-c["iat"].(float64)) * time.Second
		if c["iss"] != "12" || age < 50*time.Second || age > 5*time.Minute || life != 10*time.Minute {
			t.Errorf("claims %v", c)
		}
		if req.Method != "POST" || req.URL.String() != "https://github.example/api/v3/app/installations/34/access_tokens" ||
			body != `{"permissions":{"issues":"write"},"repositories":["site"]}` ||
			req.Header.Get("Accept") != "application/vnd.github+json" || req.Header.Get("X-GitHub-Api-Version") != "2022-11-28" {
			t.Errorf("%s %s %s %v", req.Method, req.URL, body, req.Header)
		}
		return 201, `{"token": "ghs_hunter2hunter29f8e7d6c5b4a3f2e", "expires_at": "` + ends.Format(time.RFC3339) + `", "permissions": {"issues": "write"},
			"repository_selection": "selected"}`
	}}
	files := map[string]string{
		"gh/config.json": config(t, "api.github.com", `{"GH_TOKEN": {"github_app": {"app_id": 12, "installation_id": 34,
			"key": {"file": "app.pem"}, "repositories": ["site"], "permissions": {"issues": "write"},
			"base_url": "https://github.example/api/v3/"}}}`),
		"gh/app.pem": pemOf(t, rsaKey()),
	}
	m, _, _, logged := minter(t, s, files)
	got, err := value(t, m, "GH_TOKEN")
	if got != "ghs_hunter2hunter29f8e7d6c5b4a3f2e" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if l := m.ListCredentials()[0]; l.Kind != "github_app" || l.ValidUntil == nil || l.ValidUntil.Sub(ends).Abs() > time.Minute {
		t.Errorf("%+v", l)
	}
	hidden(t, m, logged, err, got, "PRIVATE KEY", strings.Split(files["gh/app.pem"], "\n")[1])
	for status, detail := range map[int]string{401: "invalid_client", 404: "unknown_installation", 422: "invalid_scope", 500: "unexpected_status"} {
		s.answer = func(req *http.Request, _ string) (int, string) {
			return status, `{"message": "hunter2 ` + req.Header.Get("Authorization") + `"}`
		}
		m, _, _, logged := minter(t, s, files)
		_, err := value(t, m, "GH_TOKEN")
		var e *Error
		if !errors.As(err, &e) || e.Detail != detail || e.Code != policy.CodeTokenUnavailable {
			t.Errorf("%d: %v; want %s", status, err, detail)
		}
		hidden(t, m, logged, err, "hunter2", "Bearer")
	}
	for _, body := range []string{"", "hunter2", `{"token": ""}`, `{"token": "ghs_hunter2hunter29f8e7d6c5b4a3f2e"}`, `{"token": 1, "expires_at": 2}`,
		`{"token": "ghs_hunter2hunter29f8e7d6c5b4a3f2e", "expires_at": "1999-01-01T00:00:00Z"}`, `{"token": "ghs_hunter2", "expires_at": "never"}`} {
		s.answer = func(*http.Request, string) (int, string) { return 201, body }
		m, _, _, logged := minter(t, s, files)
		got, err := value(t, m, "GH_TOKEN")
		if got != "" || err == nil {
			t.Errorf("%s: %q", body, got)
		}
		hidden(t, m, logged, err, "hunter2")
	}
}

func TestGoogle(t *testing.T) {
	key := pemOf(t, rsaKey())
	sa, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "a@b.iam.gserviceaccount.com",
		"private_key_id": "k1", "private_key": key, "token_uri": "https://oauth2.googleapis.com/token"})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{answer: func(req *http.Request, body string) (int, string) {
		form, err := url.ParseQuery(body)
		if err != nil || req.URL.String() != "https://oauth2.googleapis.com/token" ||
			form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
			t.Errorf("%s %s", req.URL, body)
		}
		header, c := claims(t, form.Get("assertion"), rsaKey().Public())
		if header["kid"] != "k1" || c["iss"] != "a@b.iam.gserviceaccount.com" || c["sub"] != "ann@example.com" ||
			c["scope"] != "https://a.example/b https://a.example/c" || c["aud"] != "https://oauth2.googleapis.com/token" ||
			c["exp"].(float64)-c["iat"].(float64) != 3600 {
			t.Errorf("%v %v", header, c)
		}
		return 200, `{"access_token": "ya29.hunter2hunter29f8e7d6c5b4a3f2e", "expires_in": 3599, "token_type": "Bearer"}`
	}}
	m, _, _, logged := minter(t, s, map[string]string{
		"g/config.json": config(t, "storage.googleapis.com", `{"GCP_TOKEN": {"google": {"key": {"file": "sa.json"},
			"scopes": ["https://a.example/b", "https://a.example/c"], "subject": "ann@example.com"}}}`),
		"g/sa.json": string(sa),
	})
	got, err := value(t, m, "GCP_TOKEN")
	if got != "ya29.hunter2hunter29f8e7d6c5b4a3f2e" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	hidden(t, m, logged, err, got, strings.Split(key, "\n")[1])
}

// roleAnswer is the documented answer of AssumeRole.
const roleAnswer = `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/reader/codeforge</Arn></AssumedRoleUser><Credentials>
<AccessKeyId>ASIAHUNTER2EXAMPLE</AccessKeyId><SecretAccessKey>hunter2/secret/access/key</SecretAccessKey>
<SessionToken>hunter2+session+token==</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`

const awsConfig = `{"AWS_KEY": {"aws": {"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "hunter2-hunter2-hunter2"%s,
	"region": "eu-central-1"}}}`

func TestAssumedRole(t *testing.T) {
	s := &server{answer: func(req *http.Request, body string) (int, string) {
		form, err := url.ParseQuery(body)
		if err != nil || req.URL.String() != "https://sts.eu-central-1.amazonaws.com/" || form.Get("Action") != "AssumeRole" ||
			form.Get("RoleArn") != "arn:aws:iam::123456789012:role/reader" || form.Get("ExternalId") != "x1" {
			t.Errorf("%s %s", req.URL, body)
		}
		if a := req.Header.Get("Authorization"); !strings.Contains(a, "AKIAIOSFODNN7EXAMPLE/") || !strings.Contains(a, "/eu-central-1/sts/") {
			t.Errorf("signed as %s", a)
		}
		return 200, fmt.Sprintf(roleAnswer, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}}
	files := map[string]string{"s3/config.json": config(t, "s3.eu-central-1.amazonaws.com",
		fmt.Sprintf(awsConfig, `, "role_arn": "arn:aws:iam::123456789012:role/reader", "external_id": "x1"`))}
	m, c, _, logged := minter(t, s, files)
	req, err := http.NewRequest("GET", "https://s3.eu-central-1.amazonaws.com/b/k", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err = m.SignRequest(t.Context(), c.AllCredentials()[0], req, "s3.eu-central-1.amazonaws.com")
	}
	a := req.Header.Get("Authorization")
	if err != nil || !strings.Contains(a, "Credential=ASIAHUNTER2EXAMPLE/") || !strings.Contains(a, "/eu-central-1/s3/") ||
		req.Header.Get("X-Amz-Security-Token") != "hunter2+session+token==" || len(s.seen) != 1 {
		t.Errorf("%v, %s, %d requests", err, a, len(s.seen))
	}
	hidden(t, m, logged, err, "hunter2")
	s.answer = func(*http.Request, string) (int, string) { return 403, "<Error>hunter2 is not allowed</Error>" }
	m, c, _, logged = minter(t, s, files)
	_, err = m.SignRequest(t.Context(), c.AllCredentials()[0], req, "s3.eu-central-1.amazonaws.com")
	var e *Error
	if !errors.As(err, &e) || e.Detail != "access_denied" {
		t.Errorf("refused: %v", err)
	}
	hidden(t, m, logged, err, "hunter2")
}

// TestSigningKeyIsNoValue: no key with which requests are signed is given as a value, neither before it has signed nor
// afterwards, and to no request to a secret manager either.
// Promise: scrubbed-before-use
func TestSigningKeyIsNoValue(t *testing.T) {
	s := &server{answer: func(req *http.Request, _ string) (int, string) {
		if strings.Contains(fmt.Sprint(req.Header), "hunter2/") {
			t.Errorf("%s gets the key: %v", req.URL, req.Header)
		}
		if req.URL.Host == "sts.eu-central-1.amazonaws.com" {
			return 200, fmt.Sprintf(roleAnswer, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		}
		return 200, `{"value": "another"}`
	}}
	const role, host = `, "role_arn": "arn:aws:iam::123456789012:role/reader"`, "secretsmanager.eu-central-1.amazonaws.com"
	m, c, _, logged := minter(t, s, map[string]string{
		"sm/config.json":   strings.Replace(config(t, host, fmt.Sprintf(awsConfig, role)), "{", `{"internal": true, `, 1),
		"s3/config.json":   strings.Replace(config(t, "s3.eu-central-1.amazonaws.com", fmt.Sprintf(awsConfig, "")), "AWS_KEY", "FIXED_KEY", 1),
		"acme/config.json": config(t, "a.example.com", `{"ACME_TOKEN": {"fetch": {"url": "https://`+host+`/", "headers": {"Authorization": "Bearer AWS_KEY"}, "json": "/value"}}}`),
		"p/config.json": config(t, "p.example.com", `{"PARTNER_KEY": {"hmac": {"key": "hunter2-hunter2", "message": "{body}",
			"headers": {"X-Sign": "{signature:hex}"}}}}`),
	})
	for range 2 {
		for _, name := range []string{"AWS_KEY", "FIXED_KEY", "PARTNER_KEY"} {
			got, err := value(t, m, name)
			var e *Error
			if got != "" || !errors.As(err, &e) || e.Code != policy.CodeNotSignable {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			hidden(t, m, logged, err, "hunter2")
		}
		if got, err := value(t, m, "ACME_TOKEN"); got != "" || err == nil {
			t.Errorf("what a manager gives for the key: %q, %v", got, err)
		}
		req, err := http.NewRequest("GET", "https://"+host+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(c.AllCredentials(), func(c catalog.Credential) bool { return c.Name == "AWS_KEY" })
		if _, err := m.SignRequest(t.Context(), c.AllCredentials()[i], req, host); err != nil {
			t.Error(err)
		}
	}
}

// TestInputsAreNoValues: no secret with which a credential is obtained is its value, whatever the server gives.
// Promise: scrubbed-before-use
func TestInputsAreNoValues(t *testing.T) {
	key := pemOf(t, rsaKey())
	sa, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "a@b.iam.gserviceaccount.com",
		"private_key_id": "k1", "private_key": key, "token_uri": "https://oauth2.googleapis.com/token"})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"x/app.pem": key, "x/sa.json": string(sa)}
	for kind, conf := range map[string]string{
		"a client": `{"oauth2": {"grant": "client_credentials", "token_url": "https://login.example.com/token", "client_id": "id", "client_secret": "hunter2-client-Secret-1"}}`,
		"an app":   `{"github_app": {"app_id": 12, "installation_id": 34, "key": {"file": "app.pem"}}}`,
		"google":   `{"google": {"key": {"file": "sa.json"}, "scopes": ["https://a.example/b"]}}`,
	} {
		files["x/config.json"] = config(t, "x.example.com", `{"X_TOKEN": `+conf+`}`)
		s := &server{}
		_, c, _, _ := minter(t, s, files)
		inputs := c.AllCredentials()[0].AllSecrets()
		if len(inputs) == 0 {
			t.Errorf("%s has no secret", kind)
		}
		for _, input := range inputs {
			s.answer = func(*http.Request, string) (int, string) {
				text, _ := json.Marshal(map[string]any{"access_token": input.Reveal(), "token": input.Reveal(), "expires_in": 3600,
					"expires_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
				return 201, string(text)
			}
			m, _, _, logged := minter(t, s, files)
			got, err := value(t, m, "X_TOKEN")
			if got != "" || err == nil || len(s.seen) == 0 {
				t.Errorf("%s: %q, %v", kind, got, err)
			}
			hidden(t, m, logged, err, input.Reveal())
			s.seen = nil
		}
	}
}

// TestSignAWS: what may be signed, for what, and which bodies are read for it.
func TestSignAWS(t *testing.T) {
	config := &catalog.AWS{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: secret.New("hunter2-hunter2"), Region: "eu-central-1"}
	only := *config
	only.Services = []string{"s3"}
	k := baseKeys(config)
	small, large, huge := strings.Repeat("a", 1000), strings.Repeat("b", 2<<20), strings.Repeat("c", 9<<20)
	hash := func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) }
	for name, e := range map[string]struct {
		conf         *catalog.AWS
		host, body   string
		given        string // X-Amz-Content-Sha256
		scope, hash  string // that must be signed
		want         error
		lengthHidden bool
	}{
		"small":                     {conf: config, host: "s3.eu-central-1.amazonaws.com", body: small, scope: "/eu-central-1/s3/", hash: hash(small)},
		"a wrong hash is corrected": {conf: config, host: "s3.eu-central-1.amazonaws.com", body: small, given: hash("x"), scope: "/eu-central-1/s3/", hash: hash(small)},
		"large":                     {conf: config, host: "s3.eu-central-1.amazonaws.com", body: large, scope: "/eu-central-1/s3/", hash: sigv4.Unsigned},
		"large, no length":          {conf: config, host: "s3.eu-central-1.amazonaws.com", body: large, scope: "/eu-central-1/s3/", hash: sigv4.Unsigned, lengthHidden: true},
		"large, with its hash":      {conf: config, host: "s3.eu-central-1.amazonaws.com", body: large, given: hash(large), scope: "/eu-central-1/s3/", hash: hash(large)},
		"unsigned":                  {conf: config, host: "s3.eu-central-1.amazonaws.com", body: large, given: sigv4.Unsigned, scope: "/eu-central-1/s3/", hash: sigv4.Unsigned},
		"unsigned with a trailer":   {conf: config, host: "s3.eu-central-1.amazonaws.com", body: large, given: sigv4.UnsignedTrailer, scope: "/eu-central-1/s3/", hash: sigv4.UnsignedTrailer},
		"a bucket's host":           {conf: &only, host: "photos.s3.eu-central-1.amazonaws.com", scope: "/eu-central-1/s3/", hash: hash("")},
		"another service":           {conf: config, host: "dynamodb.eu-central-1.amazonaws.com", body: large, scope: "/eu-central-1/dynamodb/"},
		"another service, too long": {conf: config, host: "dynamodb.eu-central-1.amazonaws.com", body: huge, want: errTooLong},
		"a service not listed":      {conf: &only, host: "dynamodb.eu-central-1.amazonaws.com", want: errScope},
		"another region":            {conf: config, host: "s3.us-east-1.amazonaws.com", want: errScope},
		"the world's endpoint":      {conf: config, host: "iam.amazonaws.com", scope: "/us-east-1/iam/"},
		"not Amazon's":              {conf: &only, host: "minio.lan", scope: "/eu-central-1/s3/", hash: hash("")},
		"not Amazon's, no service":  {conf: config, host: "minio.lan", want: errScope},
		"signed chunks":             {conf: config, host: "s3.eu-central-1.amazonaws.com", given: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", want: sigv4.ErrChunks},
	} {
		req, err := http.NewRequest("PUT", "https://"+e.host+"/b/k", strings.NewReader(e.body))
		if err != nil {
			t.Fatal(err)
		}
		if e.lengthHidden {
			req.ContentLength = -1
		}
		if e.given != "" {
			req.Header.Set(sigv4.PayloadHeader, e.given)
		}
		err = signAWS(req, e.host, e.conf, k, time.Now())
		if !errors.Is(err, e.want) {
			t.Errorf("%s: %v; want %v", name, err, e.want)
			continue
		}
		a := req.Header.Get("Authorization")
		if e.want != nil {
			if a != "" {
				t.Errorf("%s: signed nevertheless", name)
			}
			continue
		}
		if got := req.Header.Get(sigv4.PayloadHeader); !strings.Contains(a, e.scope) || e.hash != "" && got != e.hash {
			t.Errorf("%s: signed for %s, hash %s; want %s, %s", name, a, got, e.scope, e.hash)
		}
		if data, err := io.ReadAll(req.Body); string(data) != e.body || err != nil {
			t.Errorf("%s: %d bytes are sent, %v; want %d", name, len(data), err, len(e.body))
		}
	}
}

// TestCopiedObject: who may write to one bucket does not read another one through it.
// Promise: never-stale-never-open
func TestCopiedObject(t *testing.T) {
	config := &catalog.AWS{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: secret.New("hunter2-hunter2"), Region: "eu-central-1", Services: []string{"s3"}}
	const bucket = "photos.s3.eu-central-1.amazonaws.com"
	for _, e := range []struct {
		host, source string
		want         error
	}{
		{bucket, "photos/a", nil}, {bucket, "/photos/a%20b", nil}, {bucket, "/photos%2Fa", nil},
		{bucket, "/private/a", errScope}, {bucket, "private%2Fa", errScope}, {bucket, "/photos-2/a", errScope}, {bucket, "//photos/a", errScope},
		{bucket, "arn:aws:s3:eu-central-1:123456789012:accesspoint/x/object/a", errScope}, {bucket, "%zz", errScope}, {bucket, "", errScope},
		{"a.s3.b.s3.dualstack.eu-central-1.amazonaws.com", "a.s3.b/k", nil}, {"a.s3.b.s3.dualstack.eu-central-1.amazonaws.com", "a/k", errScope},
		{"s3.eu-central-1.amazonaws.com", "/private/a", nil}, {"minio.lan", "/private/a", nil},
	} {
		req, err := http.NewRequest("PUT", "https://"+e.host+"/k", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Amz-Copy-Source", e.source)
		if err := signAWS(req, e.host, config, baseKeys(config), time.Now()); !errors.Is(err, e.want) {
			t.Errorf("%s at %s: %v; want %v", e.source, e.host, err, e.want)
		}
	}
}

func TestClaim(t *testing.T) {
	_, c, _, _ := minter(t, &server{}, map[string]string{
		"s3/config.json": config(t, "s3.eu-central-1.amazonaws.com", fmt.Sprintf(awsConfig, "")),
		"p/config.json": config(t, "p.example.com", `{"PARTNER_KEY": {"hmac": {"key": "hunter2-hunter2", "message": "{body}",
			"headers": {"X-Sign": "{signature:hex}", "X-Time": "{timestamp}"}}}, "PLAIN_TOKEN": "hunter2-plain"}`),
	})
	all := c.AllCredentials()
	for name, e := range map[string]struct {
		headers http.Header
		want    string
	}{
		"by name": {http.Header{"Authorization": {"AWS4-HMAC-SHA256 AWS_KEY"}}, "AWS_KEY"},
		"an SDK": {http.Header{"Authorization": {"AWS4-HMAC-SHA256 Credential=AWS_KEY/2026/x/s3/aws4_request, Signature=1"},
			"X-Amz-Security-Token": {"AWS_KEY"}}, "AWS_KEY"},
		"two":            {http.Header{"Authorization": {"AWS4-HMAC-SHA256 AWS_KEY", "AWS4-HMAC-SHA256 AWS_KEY"}}, ""},
		"another name":   {http.Header{"Authorization": {"AWS4-HMAC-SHA256 PLAIN_TOKEN"}}, ""},
		"a part of it":   {http.Header{"Authorization": {"AWS4-HMAC-SHA256 AWS_KEYS"}}, ""},
		"a bearer":       {http.Header{"Authorization": {"Bearer AWS_KEY"}}, ""},
		"hmac":           {http.Header{"X-Sign": {"PARTNER_KEY"}, "X-Time": {"1"}}, "PARTNER_KEY"},
		"hmac elsewhere": {http.Header{"X-Time": {"PARTNER_KEY"}}, ""},
		"hmac inside":    {http.Header{"X-Sign": {"x PARTNER_KEY"}}, ""},
		"nothing":        {http.Header{}, ""},
	} {
		req := &http.Request{Header: e.headers, URL: &url.URL{}}
		got := ClaimSigner(req, all)
		if (got == nil) != (e.want == "") || got != nil && got.Name != e.want {
			t.Errorf("%s: %+v; want %q", name, got, e.want)
		}
		if got != nil && strings.Contains(fmt.Sprint(req.Header), got.Name) {
			t.Errorf("%s: the name is still there: %v", name, req.Header)
		}
	}
}

func TestHMAC(t *testing.T) {
	now := time.Unix(1700000000, 123e6)
	h := &catalog.HMAC{Key: secret.New("aHVudGVyMi1rZXk="), KeyEncoding: "base64", Hash: "sha512",
		Message: "{timestamp}|{timestamp:ms}|{nonce}|{method}|{host}|{path}|{query}|{body}|{body:sha256}",
		Headers: map[string]string{"X-Sign": "v1={signature:base64}", "X-Nonce": "{nonce}", "X-Time": "{timestamp}"}}
	const body = `{"a": "{timestamp}{method}"}` // its marks are text
	req, err := http.NewRequest("POST", "https://p.example.com/a%20b?x=1&y", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signHMAC(req, h, now); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(body))
	m := hmac.New(hashFuncs["sha512"], []byte("hunter2-key"))
	fmt.Fprintf(m, "1700000000|1700000000123|%s|POST|p.example.com|/a%%20b|x=1&y|%s|%x", req.Header.Get("X-Nonce"), body, sum)
	if got, want := req.Header.Get("X-Sign"), "v1="+base64.StdEncoding.EncodeToString(m.Sum(nil)); got != want ||
		len(req.Header.Get("X-Nonce")) < 20 || req.Header.Get("X-Time") != "1700000000" {
		t.Errorf("%v; want X-Sign %s", req.Header, want)
	}
	if data, err := io.ReadAll(req.Body); string(data) != body || err != nil {
		t.Errorf("sent %s, %v", data, err)
	}
	long, err := http.NewRequest("POST", "https://p.example.com/", strings.NewReader(strings.Repeat("x", maxSigned+1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signHMAC(long, h, now); !errors.Is(err, errTooLong) || long.Header.Get("X-Sign") != "" {
		t.Errorf("a long body: %v", err)
	}
}

// vault is the catalog of an internal API with a secret manager, and of one whose credential it keeps.
func vault(t *testing.T, fetch string) map[string]string {
	t.Helper()
	return map[string]string{
		"vault/config.json": `{"description": "x", "domains": ["vault.example.com:8200"], "internal": true,
			"credentials": {"VAULT_TOKEN": "hvs.hunter2-vault"}}`,
		"acme/config.json": config(t, "a.example.com", `{"ACME_TOKEN": {"fetch": `+fetch+`, "ttl": "1m"}}`),
	}
}

const kv2 = `{"url": "https://vault.example.com:8200/v1/secret/data/acme", "headers": {"X-Vault-Token": "VAULT_TOKEN"},
	"json": "/data/data/key"}`

// TestFetchVault: HashiCorp Vault's KV version 2 as it answers, and as it fails.
func TestFetchVault(t *testing.T) {
	s := &server{answer: func(req *http.Request, _ string) (int, string) {
		if req.Header.Get("X-Vault-Token") != "hvs.hunter2-vault" || req.Method != "GET" {
			t.Errorf("%s %v", req.Method, req.Header)
		}
		return 200, `{"request_id": "1", "lease_duration": 0, "data": {"data": {"key": "hunter2-acme-1"}, "metadata": {"version": 1}}}`
	}}
	m, c, _, logged := minter(t, s, vault(t, kv2))
	got, err := value(t, m, "ACME_TOKEN")
	if got != "hunter2-acme-1" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if w := s.wants[0]; len(w.APIs) != 1 || w.APIs[0] != c.API("vault") {
		t.Errorf("the host is reached as that of %v", w.APIs)
	}
	if entries, _ := os.ReadDir(m.conf.Dir); len(entries) != 0 {
		t.Errorf("%d files were stored", len(entries))
	}
	hidden(t, m, logged, err, "hunter2")
	for name, e := range map[string]struct {
		status       int
		body, detail string
	}{
		"no right":        {403, `{"errors": ["permission denied hunter2"]}`, detailDenied},
		"moved":           {307, "", detailRedirect},
		"no secret":       {404, `{"errors": []}`, detailAbsent},
		"sealed":          {503, `{"errors": ["Vault is sealed"]}`, detailSealed},
		"another version": {200, `{"data": {"key": "hunter2-acme"}}`, detailPointer},
		"deleted":         {200, `{"data": {"data": null, "metadata": {"deletion_time": "x"}}}`, detailPointer},
		"not JSON":        {200, `<html>hunter2</html>`, detailNotJSON},
		"empty":           {200, `{"data": {"data": {"key": ""}}}`, detailUnfit},
		"short":           {200, `{"data": {"data": {"key": "hunter2"}}}`, detailUnfit},
		"several lines":   {200, `{"data": {"data": {"key": "hunter2\nhunter2"}}}`, detailUnfit},
		"an object":       {200, `{"data": {"data": {"key": {"hunter2": 1}}}}`, detailPointer},
		"the token back":  {200, `{"data": {"data": {"key": "hvs.hunter2-vault"}}}`, detailEcho},
	} {
		s.answer = func(*http.Request, string) (int, string) { return e.status, e.body }
		m, _, _, logged := minter(t, s, vault(t, kv2))
		got, err := value(t, m, "ACME_TOKEN")
		var failed *Error
		if got != "" || !errors.As(err, &failed) || failed.Detail != e.detail {
			t.Errorf("%s: %q, %v; want %s", name, got, err, e.detail)
		}
		hidden(t, m, logged, err, "hunter2")
	}
}

// TestFetchOthers: 1Password Connect, Doppler, Google's and AWS's secret managers, as they answer.
func TestFetchOthers(t *testing.T) {
	for name, e := range map[string]struct{ host, credential, fetch, answer, header, want string }{
		"1Password Connect": {"connect.example.com", `{"CONNECT_TOKEN": "hunter2-connect"}`,
			`{"url": "https://connect.example.com/v1/vaults/v/items/i", "headers": {"Authorization": "Bearer CONNECT_TOKEN"},
				"json": "/fields/1/value"}`,
			`{"id": "i", "fields": [{"id": "username", "value": "ann"}, {"id": "password", "value": "hunter2-item"}]}`,
			"Bearer hunter2-connect", "hunter2-item"},
		"Doppler": {"api.doppler.com", `{"DOPPLER_TOKEN": "dp.st.hunter2"}`,
			`{"url": "https://api.doppler.com/v3/configs/config/secret?project=p&config=prd&name=KEY",
				"headers": {"Authorization": "Bearer DOPPLER_TOKEN"}, "json": "/value/computed"}`,
			`{"name": "KEY", "value": {"raw": "${X}", "computed": "hunter2-computed"}}`, "Bearer dp.st.hunter2", "hunter2-computed"},
		"Google": {"secretmanager.googleapis.com", `{"GCP_TOKEN": "ya29.hunter2"}`,
			`{"url": "https://secretmanager.googleapis.com/v1/projects/p/secrets/s/versions/latest:access",
				"headers": {"Authorization": "Bearer GCP_TOKEN"}, "json": "/payload/data", "base64": true}`,
			`{"name": "n", "payload": {"data": "aHVudGVyMi1nb29nbGU="}}`, "Bearer ya29.hunter2", "hunter2-google"},
		"AWS": {"secretsmanager.eu-central-1.amazonaws.com", fmt.Sprintf(awsConfig, ""),
			`{"url": "https://secretsmanager.eu-central-1.amazonaws.com/", "body": "{\"SecretId\": \"acme\"}", "headers":
				{"Authorization": "AWS4-HMAC-SHA256 AWS_KEY", "X-Amz-Target": "secretsmanager.GetSecretValue",
				"Content-Type": "application/x-amz-json-1.1"}, "json": "/SecretString/password"}`,
			`{"Name": "acme", "SecretString": "{\"password\": \"hunter2-aws-pass\"}"}`,
			"/eu-central-1/secretsmanager/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-target", "hunter2-aws-pass"},
		"no credential": {"plain.example.com", `{}`, `{"url": "https://plain.example.com/"}`, "hunter2-plain\n", "", "hunter2-plain"},
	} {
		s := &server{answer: func(req *http.Request, _ string) (int, string) {
			if a := req.Header.Get("Authorization"); !strings.Contains(a, e.header) || (e.header == "") != (a == "") {
				t.Errorf("%s: Authorization: %s", name, a)
			}
			return 200, e.answer
		}}
		m, _, _, logged := minter(t, s, map[string]string{
			"source/config.json": strings.Replace(config(t, e.host, e.credential), `{`, `{"internal": true, `, 1),
			"acme/config.json":   config(t, "a.example.com", `{"ACME_TOKEN": {"fetch": `+e.fetch+`}}`),
		})
		got, err := value(t, m, "ACME_TOKEN")
		if got != e.want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		hidden(t, m, logged, err, "hunter2", "aHVudGVyMi1nb29nbGU")
	}
}

// TestFetchThroughAnother: a credential of a source may be obtained itself, and its failure is told as one.
func TestFetchThroughAnother(t *testing.T) {
	fail := false
	s := &server{answer: func(req *http.Request, _ string) (int, string) {
		switch {
		case req.URL.Host == "login.example.com" && fail:
			return 400, `{"error": "invalid_client", "error_description": "hunter2"}`
		case req.URL.Host == "login.example.com":
			return 200, `{"access_token": "hunter2-access-token-9f8e7d6c5b4a3f2e", "expires_in": 3600}`
		case req.Header.Get("Authorization") != "Bearer hunter2-access-token-9f8e7d6c5b4a3f2e":
			return 401, ""
		}
		return 200, `{"value": "hunter2-value"}`
	}}
	files := map[string]string{
		"azure/config.json": strings.Replace(config(t, "kv.example.com", `{"AZURE_TOKEN": {"oauth2": {"grant": "client_credentials",
			"token_url": "https://login.example.com/token", "client_id": "id", "client_secret": "hunter2-client"}}}`), "{", `{"internal": true, `, 1),
		"acme/config.json": config(t, "a.example.com", `{"ACME_TOKEN": {"fetch": {"url": "https://kv.example.com/secrets/x",
			"headers": {"Authorization": "Bearer AZURE_TOKEN"}, "json": "/value"}}}`),
	}
	m, _, _, logged := minter(t, s, files)
	if got, err := value(t, m, "ACME_TOKEN"); got != "hunter2-value" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	hidden(t, m, logged, nil, "hunter2")
	fail = true
	m, _, _, logged = minter(t, s, files)
	got, err := value(t, m, "ACME_TOKEN")
	var e *Error
	if got != "" || !errors.As(err, &e) || e.Name != "ACME_TOKEN" || e.Detail != detailNeedless {
		t.Errorf("%q, %v", got, err)
	}
	hidden(t, m, logged, err, "hunter2")
}

// TestWatchedFile: a file that is rewritten gives its new value without a reload, and a broken one the old value.
func TestWatchedFile(t *testing.T) {
	now := time.Now()
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	m, _, dir, logged := minter(t, &server{}, map[string]string{
		"acme/config.json": config(t, "a.example.com", `{"ACME_TOKEN": {"file": "db.json", "json": "/password", "ttl": "1m"}}`),
		"acme/db.json":     `{"password": "hunter2-first"}`,
	})
	m.conf.Now = clock
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	settled := func(want string) {
		t.Helper()
		var got string
		var err error
		for range 1000 { // a renewal runs beside the request that starts it
			if got, err = value(t, m, "ACME_TOKEN"); got == want {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	settled("hunter2-first")
	path := filepath.Join(dir, "acme", "db.json")
	if err := os.WriteFile(path, []byte(`{"password": "hunter2-second"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	pass(2 * time.Minute)
	settled("hunter2-second")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	pass(2 * time.Minute)
	settled("hunter2-second")
	pass(2 * time.Hour)
	var err error
	for range 3 {
		_, err = value(t, m, "ACME_TOKEN")
	}
	var e *Error
	if !errors.As(err, &e) || e.Detail != detailNoFile {
		t.Errorf("long after the file is gone: %v", err)
	}
	hidden(t, m, logged, err, "hunter2")
}

// TestActivatedLater: the value of a file or of a secret manager is known before its first use, also if its API, or the
// API of the secret manager's credential, was inactive at first.
// Promise: scrubbed-before-use
func TestActivatedLater(t *testing.T) {
	s := &server{answer: func(req *http.Request, _ string) (int, string) {
		if req.Header.Get("X-Vault-Token") != "hvs.hunter2-vault" {
			return 403, "{}"
		}
		return 200, `{"data": {"data": {"key": "hunter2-fetched"}}}`
	}}
	files := vault(t, kv2)
	files["db/config.json"] = config(t, "db.example.com", `{"DB_TOKEN": {"file": "db.txt", "ttl": "1m"}}`)
	files["db/db.txt"] = "hunter2-password"
	active := []string{files["vault/config.json"], files["db/config.json"]}
	for _, api := range []string{"vault", "db"} {
		name := api + "/config.json"
		files[name] = strings.Replace(files[name], "{", `{"active": false, `, 1)
	}
	m, _, dir, _ := minter(t, s, files)
	m.wg.Wait() // the fetch, which lacks its credential
	if n := m.conf.Values.Len(); n != 0 {
		t.Fatalf("%d values of inactive APIs", n)
	}
	for i, api := range []string{"vault", "db"} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, api, "config.json"), []byte(active[i]), 0o600))
	}
	c, problems := catalog.Load(dir, catalog.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	testkit.Must(t, m.Configure(c))
	m.wg.Wait()
	text, n := m.conf.Values.LayerOver(nil).ReplaceAll("hunter2-password hunter2-fetched", func(int) string { return "NAME" })
	if text != "NAME NAME" || n != 2 {
		t.Errorf("before the first use: %s", text)
	}
}

// TestSuppliedLater: a value of a secret manager that waits for a command's value is known before its first use.
// Promise: scrubbed-before-use
func TestSuppliedLater(t *testing.T) {
	s := &server{answer: func(req *http.Request, _ string) (int, string) {
		if req.Header.Get("X-Vault-Token") != "hunter2-supplied" {
			return 403, "{}"
		}
		return 200, `{"key": "hunter2-fetched"}`
	}}
	m, _, _, _ := minter(t, s, map[string]string{
		"vault/config.json": config(t, "vault.example.com", `{"VAULT_TOKEN": {"command": ["vault", "print", "token"], "ttl": "15m"}}`),
		"db/config.json": config(t, "db.example.com", `{"DB_TOKEN": {"fetch": {"url": "https://vault.example.com/v1",
			"headers": {"X-Vault-Token": "VAULT_TOKEN"}, "json": "/key"}}}`),
	})
	m.wg.Wait() // the fetch, which lacks its credential
	testkit.Must(t, m.SupplyValue("VAULT_TOKEN", credentialapi.SuppliedValue{Value: "hunter2-supplied"}))
	m.wg.Wait()
	if text, _ := m.conf.Values.LayerOver(nil).ReplaceAll("hunter2-fetched", func(int) string { return "NAME" }); text != "NAME" {
		t.Errorf("before the first use: %s", text)
	}
}

// TestFetchEcho: a source that gives back what it was asked with gives no credential, which would go to another host.
// Promise: scrubbed-before-use
func TestFetchEcho(t *testing.T) {
	for name, echo := range map[string]string{"as it is": "hunter2-access-token-9f8e7d6c5b4a3f2e", "encoded": base64.StdEncoding.EncodeToString([]byte("Bearer hunter2-access-token-9f8e7d6c5b4a3f2e"))} {
		s := &server{answer: func(req *http.Request, _ string) (int, string) {
			if req.URL.Host == "login.example.com" {
				return 200, `{"access_token": "hunter2-access-token-9f8e7d6c5b4a3f2e", "expires_in": 3600}`
			}
			return 200, `{"value": "` + echo + `"}`
		}}
		m, _, _, logged := minter(t, s, map[string]string{
			"azure/config.json": config(t, "kv.example.com", `{"AZURE_TOKEN": {"oauth2": {"grant": "client_credentials",
			"token_url": "https://login.example.com/token", "client_id": "id", "client_secret": "hunter2-client"}}}`),
			"acme/config.json": config(t, "a.example.com", `{"ACME_TOKEN": {"fetch": {"url": "https://kv.example.com/secrets/x",
			"headers": {"Authorization": "Bearer AZURE_TOKEN"}, "json": "/value"}}}`),
		})
		got, err := value(t, m, "ACME_TOKEN")
		var e *Error
		if got != "" || !errors.As(err, &e) || e.Detail != detailEcho {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		hidden(t, m, logged, err, "hunter2")
	}
}
