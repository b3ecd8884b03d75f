package settings

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// postgresPort is the port of Postgres if the URL has no port.
const postgresPort = 5432

// removed are settings of earlier versions that must not be ignored.
var removed = []string{"SKILLS_BUCKET", "HISTORY_BUCKET"}

// listRemoved reports settings that CodeForge no longer has.
func listRemoved(getenv func(string) string) (found []Mistake) {
	for _, name := range removed {
		// Ignoring the setting would silently start with empty data.
		if getenv(name) != "" {
			found = append(found, Mistake{name, "set", "DATABASE_URL: Postgres replaces buckets. Start the CodeForge " +
				"of commit 1076a279 once more with this setting: it copies the bucket into SQLite. Then remove the setting, set " +
				"DATABASE_URL and run codeforge state move (docs/guides/several-machines.md)"})
		}
	}
	return found
}

// parseDatabase reads the URL of Postgres. Everything in it except the address may be secret.
func parseDatabase(t string, to *secret.Value) string {
	if t == "" {
		return ""
	}
	const want = "a URL like postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=verify-full" //nolint:gosec // an example
	u, err := url.Parse(t)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Hostname() == "" || u.Opaque != "" ||
		strings.Contains(u.Host, ",") { // of several servers, the proxy would close the first alone
		return want
	}
	if _, err := databasePort(u); err != nil {
		return want
	}
	// These parameters would select a server other than the URL's, or a file of settings.
	for _, name := range []string{"host", "port", "hostaddr", "service", "servicefile", "passfile"} {
		if u.Query().Has(name) {
			return want + ", without the parameter " + name
		}
	}
	*to = secret.New(t)
	return ""
}

func databasePort(u *url.URL) (uint16, error) {
	if u.Port() == "" {
		return postgresPort, nil
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return uint16(port), err
}

// completeDatabase adds missing parameters to a URL of Postgres: sslmode=verify-full unless the host is loopback, and
// the file of authorities.
func (s *Settings) completeDatabase(databaseURL *secret.Value) {
	if databaseURL.IsEmpty() {
		return
	}
	u, err := url.Parse(databaseURL.Reveal())
	if err != nil {
		return // parseDatabase has already reported it
	}
	q := u.Query()
	address, err := netip.ParseAddr(u.Hostname())
	isLoopback := u.Hostname() == "localhost" || err == nil && address.IsLoopback()
	// The default of Postgres clients does not verify the certificate.
	if q.Get("sslmode") == "" && !isLoopback {
		q.Set("sslmode", "verify-full")
	}
	if !q.Has("sslrootcert") && s.DatabaseCAFile != "" {
		q.Set("sslrootcert", s.DatabaseCAFile)
	}
	u.RawQuery = q.Encode()
	*databaseURL = secret.New(u.String())
}
