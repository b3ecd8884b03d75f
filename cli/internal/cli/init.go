package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// exampleConfig is the template for apis/example. CodeForge never loads it.
const exampleConfig = `{
  "description": "Stripe payments",
  "domains": ["api.stripe.com"],
  "credentials": {
    "STRIPE_AUTH_TOKEN": "rk_test_..."
  },
  "reference": "https://docs.stripe.com/api",
  "restricted_methods": ["DELETE"],
  "active": true
}
`

func initCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "init", Short: "create apis/ and .env in the working directory",
	}
	asJSON := jsonFlag(c.Flags())
	c.RunE = func(*cobra.Command, []string) error { return initHere(e, *asJSON) }
	return c
}

func initHere(e *Env, asJSON bool) error {
	made, kept, err := writeHome(e, e.Getenv(homeVariable)) // else the working directory, even below another home
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(e.Stdout, map[string][]string{"made": made, "kept": kept})
	}
	printEach(e.Stdout, "created  ", made)
	printEach(e.Stdout, "kept     ", kept)
	fmt.Fprint(e.Stdout, "Next: codeforge api add NAME, then codeforge up (Linux) or docker compose up -d --build.\n")
	return nil
}

// writeHome creates apis/ with examples, and .env, in the folder base ("" is the working directory). It returns the
// paths that it made, and those that existed and stay. The examples of the release are one path, the folder apis.
func writeHome(e *Env, base string) (made, kept []string, err error) {
	made, kept = []string{}, []string{} // JSON's null is not a list
	proxy := environProxy(e)
	for _, f := range []struct {
		path, text string
		mode       fs.FileMode
	}{
		{filepath.Join(base, "apis", "example", "config.json.example"), exampleConfig, 0o644},
		{filepath.Join(base, dotenvFile), dotenvTemplate(proxy), 0o600},
	} {
		switch err := atomicfile.Create(f.path, []byte(f.text), f.mode); {
		case errors.Is(err, fs.ErrExist):
			kept = append(kept, f.path)
		case err != nil:
			return made, kept, err
		default:
			made = append(made, f.path)
			if filepath.Base(f.path) == dotenvFile {
				explainProxy(e, proxy, f.path)
			}
		}
	}
	copied, err := copyExamples(filepath.Join(base, "apis"))
	if copied {
		made = append(made, filepath.Join(base, "apis"))
	}
	return made, kept, err
}

// explainProxy tells the user if a new .env has the proxy of HTTPS_PROXY, or does not have it.
func explainProxy(e *Env, proxy, dotenv string) {
	switch {
	case proxy != "":
		fmt.Fprintf(e.Stderr, "HTTPS_PROXY is set, so CodeForge calls APIs through it: %s in %s\n", proxySetting, dotenv)
	case httpsProxy(e) != "":
		fmt.Fprintf(e.Stderr, "HTTPS_PROXY is set, but CodeForge calls APIs directly. "+
			"If only a proxy leads to them, set %s in %s.\n", proxySetting, dotenv)
	}
}

// copyExamples copies the examples that a release has beside its programs into a folder of APIs. It keeps existing
// files, and reports whether it made one.
func copyExamples(apis string) (copied bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, fmt.Errorf("finding the examples: %w", err)
	}
	release := filepath.Join(filepath.Dir(self), "apis")
	var paths []string
	// Only these patterns: if the release's folder is somebody's home, apis/NAME/config.json has keys.
	for _, pattern := range []string{"config.schema.json", "*/config.json.example", "*/types.d.ts"} {
		found, _ := filepath.Glob(filepath.Join(release, pattern)) // the pattern is valid
		paths = append(paths, found...)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return copied, fmt.Errorf("reading an example: %w", err)
		}
		name, err := filepath.Rel(release, path)
		if _, own := os.Stat(filepath.Join(apis, filepath.Dir(name), "config.json")); own == nil {
			continue // types.d.ts would count as the types of the user's API
		}
		if err == nil {
			err = atomicfile.Create(filepath.Join(apis, name), text, 0o644)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return copied, err
		}
		copied = copied || err == nil
	}
	return copied, nil
}

// dotenvTemplate lists every setting with its default, commented out. Only UPSTREAM_PROXY has a value, unless proxy is
// empty.
func dotenvTemplate(proxy string) string {
	var b strings.Builder
	b.WriteString("# Settings of CodeForge. All are optional; the values shown are the defaults.\n")
	for _, name := range settings.ListNames() {
		if name == proxySetting && proxy != "" {
			fmt.Fprintf(&b, "%s=%s\n", name, proxy)
			continue
		}
		fmt.Fprintf(&b, "# %s=%s\n", name, settings.DefaultOf(name))
	}
	return b.String()
}

// proxySetting is the setting with the proxy that all requests leave through.
const proxySetting = "UPSTREAM_PROXY"

// environProxy returns the proxy through which other programs of this user reach the internet, for UPSTREAM_PROXY in
// .env. It returns "" if .env cannot hold the value, for a proxy of this machine, which may end with the shell, and if
// NO_PROXY names hosts, because UPSTREAM_PROXY has no exceptions.
func environProxy(e *Env) string {
	proxy := httpsProxy(e)
	if proxy != "" && !strings.Contains(proxy, "://") {
		proxy = "http://" + proxy
	}
	read := func(name string) string {
		if name == proxySetting {
			return proxy
		}
		return ""
	}
	if _, err := settings.Parse(read); err != nil || strings.ContainsAny(proxy, " #'\"\\$\n") {
		return ""
	}
	u, err := url.Parse(proxy)
	if err != nil || cmp.Or(e.Getenv("NO_PROXY"), e.Getenv("no_proxy")) != "" {
		return ""
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() {
		return ""
	}
	return proxy
}

func httpsProxy(e *Env) string { return cmp.Or(e.Getenv("HTTPS_PROXY"), e.Getenv("https_proxy")) }
