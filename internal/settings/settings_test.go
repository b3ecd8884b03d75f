package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestDefaults(t *testing.T) {
	s, err := Parse(env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if s.YOLO || s.UserAgent != "CodeForge/dev" || s.RedactingStrings != nil || s.Debug || s.MCPPort != 8080 || !s.MCPAuthToken.IsEmpty() ||
		s.MCPAllowedHosts != nil || s.Slots != 8 || s.Warm != 2 || s.Memory != 1<<30 || s.Servers != 8 || s.ServerMemory != 512<<20 || s.Programs != "" || s.Registry != nil || s.RegistryPrivate != nil || s.SkillsReadonly || s.OutputLimit != 40000 ||
		s.TimeoutDefault != 5*time.Minute || s.TimeoutMax != 5*time.Minute || s.AnswerAfter != 45*time.Second || s.UpstreamProxy != nil || s.UpstreamCAFile != "" || s.TZ != "UTC" || s.LogFormat != "text" {
		t.Errorf("defaults: %#v", fields(s))
	}
	blank := map[string]string{}
	for _, name := range ListNames() {
		blank[name] = "  "
	}
	if b, err := Parse(env(blank)); err != nil || fmt.Sprint(fields(b)) != fmt.Sprint(fields(s)) {
		t.Errorf("blank variables are not the defaults: %v, %v", fields(b), err)
	}
}

// fields is Settings without its masks.
func fields(s Settings) any {
	type plain Settings
	return plain(s)
}

// TestNames holds the list of architecture and .env.example: each variable with its default.
func TestNames(t *testing.T) {
	want := "YOLO_MODE=false USER_AGENT=CodeForge/dev REDACTING_STRINGS= REDACTING_STRINGS_FILE= DEBUG_MODE=false MCP_PORT=8080 MCP_AUTH_TOKEN= MCP_AUTH_TOKEN_FILE= MCP_TOKENS_FILE= MCP_ALLOWED_HOSTS= MCP_ALLOWED_ORIGINS= PUBLIC_URL= OIDC_ISSUER= OIDC_AUDIENCE= OIDC_SCOPES= OIDC_CLAIM=sub OIDC_CA_FILE= OIDC_INTROSPECTION_ID= OIDC_INTROSPECTION_SECRET_FILE= " +
		"SANDBOX_SLOTS=8 SANDBOX_WARM=2 SANDBOX_WARM_PYTHON=0 SANDBOX_MEMORY=1g SANDBOX_SERVERS=8 SANDBOX_SERVER_MEMORY=512m SANDBOX_SUBNET=10.77.0 SANDBOX_PROGRAMS= PACKAGE_REGISTRY= PACKAGE_REGISTRY_PRIVATE= CANARIES=on SKILLS_READONLY=false OUTPUT_LIMIT=40000 TIMEOUT_DEFAULT= TIMEOUT_MAX=300 ANSWER_AFTER=45 " +
		"UPSTREAM_PROXY= UPSTREAM_CA_FILE= AUDIT=on AUDIT_KEEP=90 AUDIT_SIZE=8g AUDIT_ANCHOR= TZ=UTC LOG_FORMAT=text HISTORY=full DATABASE_URL= DATABASE_URL_FILE= PROXY_DATABASE_URL= PROXY_DATABASE_URL_FILE= DATABASE_CA_FILE= OTEL_EXPORTER_OTLP_ENDPOINT= OTEL_TRACES_EXPORTER=otlp OTEL_METRICS_EXPORTER=otlp OTEL_LOGS_EXPORTER=otlp OTEL_METRIC_EXPORT_INTERVAL=60000"
	var got []string
	for _, name := range ListNames() {
		got = append(got, name+"="+DefaultOf(name))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	if DefaultOf("PATH") != "" {
		t.Error("an unknown name has a default")
	}
}

func TestValues(t *testing.T) {
	rows := []struct {
		name, text string
		get        func(s Settings) any
		want       any
	}{
		{"YOLO_MODE", "TRUE", func(s Settings) any { return s.YOLO }, true},
		{"YOLO_MODE", "1", func(s Settings) any { return s.YOLO }, true},
		{"DEBUG_MODE", "no", func(s Settings) any { return s.Debug }, false},
		{"USER_AGENT", "Me/1.0 (x)", func(s Settings) any { return s.UserAgent }, "Me/1.0 (x)"},
		{"REDACTING_STRINGS", " Acme Corp , Jane Doe,,", func(s Settings) any { return strings.Join(s.RedactingStrings, "|") }, "Acme Corp|Jane Doe"},
		{"MCP_PORT", "65535", func(s Settings) any { return s.MCPPort }, 65535},
		{"MCP_AUTH_TOKEN", "0123456789abcdef", func(s Settings) any { return s.MCPAuthToken.Reveal() }, "0123456789abcdef"},
		{"MCP_ALLOWED_HOSTS", "Forge.Example.com., 192.168.1.5:8080,[FD00::1]:80,[::1],box:80", func(s Settings) any { return strings.Join(s.MCPAllowedHosts, " ") },
			"forge.example.com 192.168.1.5:8080 [fd00::1]:80 [::1] box:80"},
		{"SANDBOX_SLOTS", "100", func(s Settings) any { return s.Slots }, 100},
		{"SANDBOX_WARM", "0", func(s Settings) any { return s.Warm }, 0},
		{"SANDBOX_SLOTS", "1", func(s Settings) any { return s.Warm }, 1},
		{"SANDBOX_WARM_PYTHON", "1", func(s Settings) any { return s.WarmPython }, 1},
		{"SANDBOX_MEMORY", "512M", func(s Settings) any { return s.Memory }, int64(512 << 20)},
		{"SANDBOX_MEMORY", "1024g", func(s Settings) any { return s.Memory }, int64(1 << 40)},
		{"SANDBOX_MEMORY", "2gb", func(s Settings) any { return s.Memory }, int64(2 << 30)},
		{"SANDBOX_MEMORY", "524288k", func(s Settings) any { return s.Memory }, int64(512 << 20)},
		{"SANDBOX_MEMORY", "134217728", func(s Settings) any { return s.Memory }, int64(128 << 20)},
		{"SANDBOX_SERVERS", "0", func(s Settings) any { return s.Servers }, 0},
		{"SANDBOX_SUBNET", "192.168.177", func(s Settings) any { return s.Network.Proxy().String() }, "192.168.177.2"},
		{"SANDBOX_SERVERS", "32", func(s Settings) any { return s.Servers }, 32},
		{"SANDBOX_SERVER_MEMORY", "1g", func(s Settings) any { return s.ServerMemory }, int64(1 << 30)},
		{"SANDBOX_PROGRAMS", "/opt/servers", func(s Settings) any { return s.Programs }, "/opt/servers"},
		{"PACKAGE_REGISTRY", "https://packages.example.com/npm/", func(s Settings) any { return s.Registry.String() }, "https://packages.example.com/npm/"},
		{"PACKAGE_REGISTRY_PRIVATE", "10.1.0.0/16, 203.0.113.0/24, fd12:3456::/48", func(s Settings) any { return fmt.Sprint(s.RegistryPrivate) }, "[10.1.0.0/16 203.0.113.0/24 fd12:3456::/48]"},
		{"TIMEOUT_DEFAULT", "", func(s Settings) any { return s.TimeoutDefault }, 5 * time.Minute},
		{"ANSWER_AFTER", "3", func(s Settings) any { return s.AnswerAfter }, 3 * time.Second},
		{"TIMEOUT_DEFAULT", "300", func(s Settings) any { return s.TimeoutDefault }, 5 * time.Minute},
		{"UPSTREAM_PROXY", "http://proxy.example.com:3128", func(s Settings) any { return s.UpstreamProxy.Host }, "proxy.example.com:3128"},
		{"UPSTREAM_PROXY", "socks5://u:p@10.0.0.1:1080/", func(s Settings) any { return s.UpstreamProxy.Scheme }, "socks5"},
		{"AUDIT", "Required", func(s Settings) any { return s.Audit }, "required"},
		{"AUDIT_KEEP", "7", func(s Settings) any { return s.AuditKeep }, 7 * 24 * time.Hour},
		{"AUDIT_KEEP", "0", func(s Settings) any { return s.AuditKeep }, time.Duration(0)},
		{"AUDIT_SIZE", "200M", func(s Settings) any { return s.AuditSize }, int64(200 << 20)},
		{"AUDIT_ANCHOR", "/var/log/anchor", func(s Settings) any { return s.AuditAnchor }, "/var/log/anchor"},
		{"MCP_TOKENS_FILE", "/etc/tenants.json", func(s Settings) any { return s.MCPTokensFile }, "/etc/tenants.json"},
		{"UPSTREAM_CA_FILE", "/etc/ca.pem", func(s Settings) any { return s.UpstreamCAFile }, "/etc/ca.pem"},
		{"TZ", "Europe/Berlin", func(s Settings) any { return s.TZ }, "Europe/Berlin"},
		{"LOG_FORMAT", "JSON", func(s Settings) any { return s.LogFormat }, "json"},
		{"HISTORY", "Receipts", func(s Settings) any { return s.History }, "receipts"},
	}
	for _, r := range rows {
		s, err := Parse(env(map[string]string{r.name: r.text}))
		if err != nil || r.get(s) != r.want {
			t.Errorf("%s=%s gives %v, %v; want %v", r.name, r.text, r.get(s), err, r.want)
		}
	}
}

func notRegistry(length int) string {
	return fmt.Sprintf("PACKAGE_REGISTRY: a value of %d bytes, not shown; want an https:// URL without user, password and port, e.g. what `npm config get registry` prints", length)
}

func notRanges(text string) string {
	return fmt.Sprintf("PACKAGE_REGISTRY_PRIVATE: %q; want ranges of private addresses or of addresses for documentation, separated by commas, e.g. 10.1.0.0/16", text)
}

func TestRefused(t *testing.T) {
	const notShown, wantURL = " bytes, not shown; want ", "a URL like postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=verify-full"
	rows := []struct{ name, text, want string }{
		{"YOLO_MODE", "maybe", `YOLO_MODE: "maybe"; want true or false`},
		{"DEBUG_MODE", "2", `DEBUG_MODE: "2"; want true or false`},
		{"CANARIES", "some", `CANARIES: "some"; want on or off`},
		{"SKILLS_READONLY", "tru", `SKILLS_READONLY: "tru"; want true or false`},
		{"USER_AGENT", "a\r\nX-Evil: 1", `USER_AGENT: "a\r\nX-Evil: 1"; want printable ASCII, as a header's value`},
		{"USER_AGENT", "größe", `USER_AGENT: "größe"; want printable ASCII, as a header's value`},
		{"REDACTING_STRINGS", "Jane Doe,abc", "REDACTING_STRINGS: a value of 12" + notShown + "strings of at least 4 bytes each, separated by commas"},
		{"REDACTING_STRINGS_FILE", "/nonexistent/list", fmt.Sprintf(`REDACTING_STRINGS_FILE: "/nonexistent/list"; want a file that this process (user %d) can read, but: no such file or directory`, os.Getuid())},
		{"MCP_PORT", "http", `MCP_PORT: "http"; want a whole number from 1 to 65535`},
		{"MCP_PORT", "0", `MCP_PORT: "0"; want a whole number from 1 to 65535`},
		{"MCP_PORT", "65536", `MCP_PORT: "65536"; want a whole number from 1 to 65535`},
		{"MCP_PORT", "8080.0", `MCP_PORT: "8080.0"; want a whole number from 1 to 65535`},
		{"MCP_AUTH_TOKEN", "hunter2", "MCP_AUTH_TOKEN: a value of 7" + notShown + "at least 16 printable ASCII characters without spaces"},
		{"MCP_AUTH_TOKEN", "hunter2 hunter2 hunter2", "MCP_AUTH_TOKEN: a value of 23" + notShown + "at least 16 printable ASCII characters without spaces"},
		{"MCP_AUTH_TOKEN_FILE", "/nonexistent/token", fmt.Sprintf(`MCP_AUTH_TOKEN_FILE: "/nonexistent/token"; want a file that this process (user %d) can read, but: no such file or directory`, os.Getuid())},
		{"MCP_ALLOWED_HOSTS", "http://x", `MCP_ALLOWED_HOSTS: "http://x"; want host names or addresses, each with an optional port, separated by commas, e.g. codeforge.example.com`},
		{"MCP_ALLOWED_HOSTS", "*", `MCP_ALLOWED_HOSTS: "*"; want host names or addresses, each with an optional port, separated by commas, e.g. codeforge.example.com`},
		{"MCP_ALLOWED_HOSTS", "x:0", `MCP_ALLOWED_HOSTS: "x:0"; want host names or addresses, each with an optional port, separated by commas, e.g. codeforge.example.com`},
		{"MCP_ALLOWED_HOSTS", "::1", `MCP_ALLOWED_HOSTS: "::1"; want host names or addresses, each with an optional port, separated by commas, e.g. codeforge.example.com`},
		{"MCP_ALLOWED_HOSTS", "[::1", `MCP_ALLOWED_HOSTS: "[::1"; want host names or addresses, each with an optional port, separated by commas, e.g. codeforge.example.com`},
		{"MCP_ALLOWED_ORIGINS", "app.example.com", `MCP_ALLOWED_ORIGINS: "app.example.com"; want origins separated by commas, e.g. https://app.example.com`},
		{"MCP_ALLOWED_ORIGINS", "https://app.example.com/x", `MCP_ALLOWED_ORIGINS: "https://app.example.com/x"; want origins separated by commas, e.g. https://app.example.com`},
		{"MCP_ALLOWED_ORIGINS", "*", `MCP_ALLOWED_ORIGINS: "*"; want origins separated by commas, e.g. https://app.example.com`},
		{"MCP_ALLOWED_ORIGINS", "ftp://app.example.com", `MCP_ALLOWED_ORIGINS: "ftp://app.example.com"; want origins separated by commas, e.g. https://app.example.com`},
		{"MCP_ALLOWED_ORIGINS", "https://me@app.example.com", `MCP_ALLOWED_ORIGINS: "https://me@app.example.com"; want origins separated by commas, e.g. https://app.example.com`},
		{"MCP_ALLOWED_ORIGINS", "https://app.example.com?a", `MCP_ALLOWED_ORIGINS: "https://app.example.com?a"; want origins separated by commas, e.g. https://app.example.com`},
		{"MCP_ALLOWED_ORIGINS", "https://app.example.com?", `MCP_ALLOWED_ORIGINS: "https://app.example.com?"; want origins separated by commas, e.g. https://app.example.com`},
		{"MCP_ALLOWED_ORIGINS", "https://app.example.com#", `MCP_ALLOWED_ORIGINS: "https://app.example.com#"; want origins separated by commas, e.g. https://app.example.com`},
		{"MCP_ALLOWED_ORIGINS", "null", `MCP_ALLOWED_ORIGINS: "null"; want origins separated by commas, e.g. https://app.example.com`},
		{"MCP_ALLOWED_ORIGINS", "https://app.example.com", "MCP_ALLOWED_ORIGINS: set without a token; want MCP_TOKENS_FILE or MCP_AUTH_TOKEN with it"},
		{"PUBLIC_URL", "http://forge.example.com", `PUBLIC_URL: "http://forge.example.com"; want an https:// URL without a path, e.g. https://codeforge.example.com`},
		{"PUBLIC_URL", "https://forge.example.com/mcp", `PUBLIC_URL: "https://forge.example.com/mcp"; want an https:// URL without a path, e.g. https://codeforge.example.com`},
		{"PUBLIC_URL", "https://u:p@forge.example.com", `PUBLIC_URL: "https://u:p@forge.example.com"; want an https:// URL without a path, e.g. https://codeforge.example.com`},
		{"PUBLIC_URL", "https://forge.example.com?", `PUBLIC_URL: "https://forge.example.com?"; want an https:// URL without a path, e.g. https://codeforge.example.com`},
		{"PUBLIC_URL", "https://", `PUBLIC_URL: "https://"; want an https:// URL without a path, e.g. https://codeforge.example.com`},
		{"PUBLIC_URL", "https://forge.example.com", "PUBLIC_URL: set without a token; want MCP_TOKENS_FILE or MCP_AUTH_TOKEN with it"},
		{"OIDC_ISSUER", "http://login.example.com", `OIDC_ISSUER: "http://login.example.com"; want an https:// URL without query, exactly as the provider's tokens name it, e.g. https://login.example.com`},
		{"OIDC_ISSUER", "https://login.example.com", "OIDC_ISSUER: set alone; want PUBLIC_URL with it\nOIDC_ISSUER: set alone; want MCP_TOKENS_FILE with it, which names the logins"},
		{"OIDC_AUDIENCE", "a\nb", `OIDC_AUDIENCE: "a\nb"; want printable ASCII, as a header's value`},
		{"OIDC_SCOPES", "größe", `OIDC_SCOPES: "größe"; want printable ASCII, as a header's value`},
		{"OIDC_CLAIM", "a\nb", `OIDC_CLAIM: "a\nb"; want printable ASCII, as a header's value`},
		{"OIDC_INTROSPECTION_ID", "codeforge", "OIDC_INTROSPECTION_ID: set without its secret, or the reverse; want OIDC_INTROSPECTION_SECRET_FILE with it"},
		{"OIDC_INTROSPECTION_SECRET_FILE", "a\x00b", `OIDC_INTROSPECTION_SECRET_FILE: "a\x00b"; want the path of a file with a secret`},
		{"OIDC_CA_FILE", "a\x00b", `OIDC_CA_FILE: "a\x00b"; want the path of a PEM file`},
		{"SANDBOX_SLOTS", "101", `SANDBOX_SLOTS: "101"; want a whole number from 1 to 100`},
		{"SANDBOX_SLOTS", "0", `SANDBOX_SLOTS: "0"; want a whole number from 1 to 100`},
		{"SANDBOX_WARM", "-1", `SANDBOX_WARM: "-1"; want a whole number from 0 to 100`},
		{"SANDBOX_WARM", "9", `SANDBOX_WARM: 9; want at most SANDBOX_SLOTS, which is 8`},
		{"SANDBOX_WARM_PYTHON", "x", `SANDBOX_WARM_PYTHON: "x"; want a whole number from 0 to 100`},
		{"SANDBOX_WARM_PYTHON", "9", `SANDBOX_WARM_PYTHON: 9; want at most SANDBOX_SLOTS, which is 8`},
		{"SANDBOX_MEMORY", "lots", `SANDBOX_MEMORY: "lots"; want a number with k, m or g, e.g. 512m or 1g, from 128m to 1024g`},
		{"SANDBOX_MEMORY", "512mk", `SANDBOX_MEMORY: "512mk"; want a number with k, m or g, e.g. 512m or 1g, from 128m to 1024g`},
		{"SANDBOX_MEMORY", "512km", `SANDBOX_MEMORY: "512km"; want a number with k, m or g, e.g. 512m or 1g, from 128m to 1024g`},
		{"SANDBOX_MEMORY", "512mg", `SANDBOX_MEMORY: "512mg"; want a number with k, m or g, e.g. 512m or 1g, from 128m to 1024g`},
		{"SANDBOX_MEMORY", "1025g", `SANDBOX_MEMORY: "1025g"; want a number with k, m or g, e.g. 512m or 1g, from 128m to 1024g`},
		{"SANDBOX_MEMORY", "127m", `SANDBOX_MEMORY: "127m"; want a number with k, m or g, e.g. 512m or 1g, from 128m to 1024g`},
		{"SANDBOX_MEMORY", "1t", `SANDBOX_MEMORY: "1t"; want a number with k, m or g, e.g. 512m or 1g, from 128m to 1024g`},
		{"SANDBOX_MEMORY", "b", `SANDBOX_MEMORY: "b"; want a number with k, m or g, e.g. 512m or 1g, from 128m to 1024g`},
		{"SANDBOX_MEMORY", "9223372036854775807g", `SANDBOX_MEMORY: "9223372036854775807g"; want a number with k, m or g, e.g. 512m or 1g, from 128m to 1024g`},
		{"SANDBOX_SUBNET", "10.78.0.0/24", `SANDBOX_SUBNET: "10.78.0.0/24"; want the first three numbers of a private network that is not in use here, e.g. "10.78.0"`},
		{"SANDBOX_SERVERS", "33", `SANDBOX_SERVERS: "33"; want a whole number from 0 to 32`},
		{"SANDBOX_SERVER_MEMORY", "1m", `SANDBOX_SERVER_MEMORY: "1m"; want a number with k, m or g, e.g. 512m or 1g, from 64m to 1024g`},
		{"SANDBOX_PROGRAMS", "a\x00b", `SANDBOX_PROGRAMS: "a\x00b"; want the path of a folder`},
		{"PACKAGE_REGISTRY", "http://packages.example.com/", notRegistry(28)},
		{"PACKAGE_REGISTRY", "https://u:hunter2@packages.example.com/", notRegistry(39)},
		{"PACKAGE_REGISTRY", "https://packages.example.com:8443/", notRegistry(34)},
		{"PACKAGE_REGISTRY", "https://10.0.0.1/", notRegistry(17)},
		{"PACKAGE_REGISTRY", "packages.example.com", notRegistry(20)},
		{"PACKAGE_REGISTRY_PRIVATE", "8.8.8.0/24", notRanges("8.8.8.0/24")},
		{"PACKAGE_REGISTRY_PRIVATE", "169.254.0.0/16", notRanges("169.254.0.0/16")},
		{"PACKAGE_REGISTRY_PRIVATE", "0.0.0.0/0", notRanges("0.0.0.0/0")},
		{"PACKAGE_REGISTRY_PRIVATE", "10.0.0.0/7", notRanges("10.0.0.0/7")},
		{"PACKAGE_REGISTRY_PRIVATE", "10.0.0.1", notRanges("10.0.0.1")},
		{"OUTPUT_LIMIT", "999", `OUTPUT_LIMIT: "999"; want a whole number from 1000 to 10000000`},
		{"TIMEOUT_DEFAULT", "60s", `TIMEOUT_DEFAULT: "60s"; want seconds, a whole number from 1 to 86400`},
		{"TIMEOUT_DEFAULT", "301", `TIMEOUT_DEFAULT: 301; want at most TIMEOUT_MAX, which is 300`},
		{"TIMEOUT_MAX", "86401", `TIMEOUT_MAX: "86401"; want seconds, a whole number from 1 to 86400`},
		{"ANSWER_AFTER", "0", `ANSWER_AFTER: "0"; want seconds, a whole number from 1 to 86400`},
		{"UPSTREAM_PROXY", "u:hunter2@proxy:3128", "UPSTREAM_PROXY: a value of 20" + notShown + "a URL like http://proxy.example.com:3128"},
		{"UPSTREAM_PROXY", "ftp://u:hunter2@proxy", "UPSTREAM_PROXY: a value of 21" + notShown + "a URL that starts with http://, https:// or socks5://"},
		{"AUDIT", "yes", `AUDIT: "yes"; want on or off or required`},
		{"AUDIT_SIZE", "1m", `AUDIT_SIZE: "1m"; want a number with k, m or g, e.g. 512m or 1g, from 16m to 1024g`},
		{"AUDIT_KEEP", "-1", `AUDIT_KEEP: "-1"; want a whole number from 0 to 36500`},
		{"AUDIT_ANCHOR", "a\x00b", `AUDIT_ANCHOR: "a\x00b"; want the path of a file`},
		{"UPSTREAM_CA_FILE", "a\x00b", `UPSTREAM_CA_FILE: "a\x00b"; want the path of a PEM file`},
		{"MCP_TOKENS_FILE", "a\x00b", `MCP_TOKENS_FILE: "a\x00b"; want the path of a JSON file`},
		{"TZ", "Mars/Olympus", `TZ: "Mars/Olympus"; want a time zone of the IANA database, e.g. UTC or Europe/Berlin`},
		{"TZ", "../../etc/passwd", `TZ: "../../etc/passwd"; want a time zone of the IANA database, e.g. UTC or Europe/Berlin`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:secret@collector:4318", `OTEL_EXPORTER_OTLP_ENDPOINT: "http://me:secret@collector:4318"; want the URL of a collector without a user, e.g. http://127.0.0.1:4318`},
		{"OTEL_TRACES_EXPORTER", "console", `OTEL_TRACES_EXPORTER: "console"; want otlp or none`},
		{"OTEL_METRICS_EXPORTER", "prometheus", `OTEL_METRICS_EXPORTER: "prometheus"; want otlp or none`},
		{"OTEL_LOGS_EXPORTER", "otlp,none", `OTEL_LOGS_EXPORTER: "otlp,none"; want otlp or none`},
		{"OTEL_METRIC_EXPORT_INTERVAL", "10s", `OTEL_METRIC_EXPORT_INTERVAL: "10s"; want a whole number from 1000 to 86400000`},
		{"LOG_FORMAT", "xml", `LOG_FORMAT: "xml"; want text or json`},
		{"HISTORY", "some", `HISTORY: "some"; want full or receipts or off`},
		{"DATABASE_URL", "mysql://a:b@c/d", "DATABASE_URL: a value of 15" + notShown + wantURL},
		{"DATABASE_URL", "postgres:///d", "DATABASE_URL: a value of 13" + notShown + wantURL},
		{"DATABASE_URL", "postgres://a:b@c:99999/d", "DATABASE_URL: a value of 24" + notShown + wantURL},
		{"DATABASE_URL", "postgres://a:b@c,d/e", "DATABASE_URL: a value of 20" + notShown + wantURL},
		{"DATABASE_URL", "postgres://c/d?host=e", "DATABASE_URL: a value of 21" + notShown + wantURL + ", without the parameter host"},
		{"DATABASE_URL_FILE", "/nowhere", "DATABASE_URL_FILE: \"/nowhere\"; want a file that this process (user " + strconv.Itoa(os.Getuid()) + ") can read, but: no such file or directory"},
		{"PROXY_DATABASE_URL", "postgres:///d", "PROXY_DATABASE_URL: a value of 13" + notShown + wantURL},
		{"PROXY_DATABASE_URL_FILE", "/nowhere", "PROXY_DATABASE_URL_FILE: \"/nowhere\"; want a file that this process (user " + strconv.Itoa(os.Getuid()) + ") can read, but: no such file or directory"},
		{"DATABASE_CA_FILE", "a\x00b", `DATABASE_CA_FILE: "a\x00b"; want the path of a PEM file`},
		{"LOG_FORMAT", strings.Repeat("x", 70), `LOG_FORMAT: "` + strings.Repeat("x", 60) + `..."; want text or json`},
	}
	tried := map[string]bool{}
	for _, r := range rows {
		tried[r.name] = true
		if _, err := Parse(env(map[string]string{r.name: r.text})); err == nil || err.Error() != r.want {
			t.Errorf("%s=%q:\ngot  %v\nwant %s", r.name, r.text, err, r.want)
		}
	}
	for _, name := range ListNames() {
		if !tried[name] {
			t.Errorf("no bad value of %s is tried", name)
		}
	}
}

// TestLogins: an origin is written as browsers write it, an issuer as its tokens do. The endpoint's URL is the default
// audience.
func TestLogins(t *testing.T) {
	s, err := Parse(env(map[string]string{
		"MCP_TOKENS_FILE": "/t.json", "PUBLIC_URL": "https://Forge.example.com:443/", "OIDC_ISSUER": "https://Login.example.com/", "OIDC_SCOPES": "openid, mcp",
		"MCP_ALLOWED_ORIGINS": "http://LOCALHOST:6274, https://app.example.com:443",
	}))
	if err != nil || s.PublicURL != "https://forge.example.com" || s.OIDC.Issuer != "https://Login.example.com/" || s.OIDC.Audience != "https://forge.example.com/mcp" ||
		strings.Join(s.OIDC.Scopes, " ") != "openid mcp" || s.OIDC.Claim != "sub" || strings.Join(s.MCPAllowedOrigins, " ") != "http://localhost:6274 https://app.example.com" {
		t.Errorf("%+v %q %q %v", s.OIDC, s.PublicURL, s.MCPAllowedOrigins, err)
	}
	for hosts, refused := range map[string]bool{"forge.example.com": true, "Forge.example.com:8080": true, "example.com": false, "xforge.example.com, [::1]": false} {
		_, err := Parse(env(map[string]string{"MCP_TOKENS_FILE": "/t.json", "PUBLIC_URL": "https://forge.example.com", "MCP_ALLOWED_HOSTS": hosts}))
		if got := err != nil && err.Error() == "MCP_ALLOWED_HOSTS: the host of PUBLIC_URL in it; want only hosts that may open the console"; got != refused || err != nil && !got {
			t.Errorf("%s: %v", hosts, err)
		}
	}
	s, err = Parse(env(map[string]string{
		"MCP_TOKENS_FILE": "/t.json", "PUBLIC_URL": "https://[FD00::1]:8443", "OIDC_ISSUER": "https://login.example.com", "OIDC_AUDIENCE": "api://x", "OIDC_CLAIM": "groups",
	}))
	if err != nil || s.PublicURL != "https://[fd00::1]:8443" || s.OIDC.Audience != "api://x" || s.OIDC.Claim != "groups" {
		t.Errorf("%+v %q %v", s.OIDC, s.PublicURL, err)
	}
}

// TestDatabase: TLS is verified unless the host is loopback or the URL names an sslmode; the settings of buckets are
// refused with the way out.
// Promise: shared-runs
func TestDatabase(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:p@db.example.com/x":                  "sslmode=verify-full",
		"postgres://u:p@10.0.0.7:5433/x?connect_timeout=3": "connect_timeout=3&sslmode=verify-full",
		"postgres://u:p@db.example.com/x?sslmode=disable":  "sslmode=disable",
		"postgres://u:p@db.example.com/x?sslmode=":         "sslmode=verify-full",
		"postgres://u:p@127.0.0.1/x":                       "",
		"postgres://u:p@[::1]/x":                           "",
		"postgresql://u:p@localhost:1/x":                   "",
	} {
		s, err := Parse(env(map[string]string{"DATABASE_URL": url}))
		if _, query, _ := strings.Cut(s.Database.Reveal(), "?"); err != nil || query != want {
			t.Errorf("%s: %q %v", url, query, err)
		}
	}
	s, err := Parse(env(map[string]string{"DATABASE_URL": "postgres://u:p@10.0.0.7:5433/x", "DATABASE_CA_FILE": "/ca.pem"}))
	if url := s.Database.Reveal(); err != nil || !strings.Contains(url, "@10.0.0.7:5433/") || !strings.Contains(url, "sslrootcert=%2Fca.pem") {
		t.Errorf("%q %v", url, err)
	}
	for _, name := range []string{"SKILLS_BUCKET", "HISTORY_BUCKET"} {
		_, err := Parse(env(map[string]string{name: "s3://x"}))
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "1076a279") || !strings.Contains(err.Error(), "codeforge state move") {
			t.Error(err)
		}
	}
}

// TestAllAtOnce: every mistake is named, in the order of the list.
func TestAllAtOnce(t *testing.T) {
	bad := map[string]string{"TZ": "x y", "YOLO_MODE": "x", "MCP_PORT": "x", "LOG_FORMAT": "x"}
	_, err := Parse(env(bad))
	var mistakes Error
	if !errors.As(err, &mistakes) || len(mistakes) != 4 {
		t.Fatalf("%d mistakes: %v", len(mistakes), err)
	}
	var order []string
	for _, m := range mistakes {
		order = append(order, m.Name)
	}
	if strings.Join(order, " ") != "YOLO_MODE MCP_PORT TZ LOG_FORMAT" || len(slices.Collect(maps.Keys(bad))) != 4 {
		t.Errorf("order: %v", order)
	}
}

func TestSettingsDoNotPrint(t *testing.T) {
	const canary = "canary-0123456789"
	s, err := Parse(env(map[string]string{"MCP_AUTH_TOKEN": canary, "REDACTING_STRINGS": canary, "UPSTREAM_PROXY": "http://u:" + canary + "@proxy:1"}))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	slog.New(slog.NewTextHandler(&b, nil)).Info("m", "s", s)
	data, _ := json.Marshal(map[string]any{"s": s, "p": &s})
	fmt.Fprintf(&b, "%v %+v %#v %s %x %s", s, s, &s, s, s, data)
	if strings.Contains(b.String(), canary) || !strings.Contains(b.String(), "[settings]") {
		t.Errorf("printed: %s", b.String())
	}
}

// TestMisspelt: slips are named with what was meant, and variables of other programs are left alone.
func TestMisspelt(t *testing.T) {
	vars := map[string]string{
		"MCP_PROT": "8090", "mcp_port": "1", "SANDBOX_SLOT": "4", "YOLO": "true", "TIMEOUT_DEFALT": "5", "OUTPUT_LIMITS": "1",
		"MCP_PORT": "8080", "COMPOSE_PROJECT_NAME": "x", "MODE": "docker", "GITHUB_TOKEN": "x", "STRIPE_AUTH_TOKEN": "x", "PATH": "x",
		"TZ": "UTC", "T": "x", "CODEFORGE_URL": "x", "HTTP_PROXY": "x",
	}
	var got []string
	for _, m := range ListMisspelt(vars) {
		got = append(got, m.Name+" "+m.Want)
	}
	want := "MCP_PROT MCP_PORT, OUTPUT_LIMITS OUTPUT_LIMIT, SANDBOX_SLOT SANDBOX_SLOTS, TIMEOUT_DEFALT TIMEOUT_DEFAULT, YOLO YOLO_MODE, mcp_port MCP_PORT"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
}
