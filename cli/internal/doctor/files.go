package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/embedded"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// checkRunning checks the supervisor of the state directory, or else the server that Docker publishes.
func checkRunning(ctx context.Context, c Config) []Finding {
	up, err := c.State.ReadUp()
	if err != nil {
		out := []Finding{newSkip("embedded mode", err.Error())}
		place, err := mcpclient.LocateServer(ctx, c.Server)
		if err != nil || place.URL == "" {
			return out
		}
		err = mcpclient.CheckReady(ctx, c.Server, place)
		switch {
		case err == nil:
			return append(out, newOK("server", "answers at "+place.Name()))
		case c.Container || !errors.Is(err, syscall.ECONNREFUSED):
			return append(out, newFailure("server", err.Error(), "docker compose ps and docker compose logs show more"))
		}
		return append(out, newSkip("server", "no answer at "+place.URL))
	}
	out := []Finding{newOK("embedded mode", fmt.Sprintf("is running (process %d, %s)", up.PID, up.Endpoint()))}
	if up.Again != nil {
		out = append(out, newWarning("restart", up.Again.String(), "log/codeforge.log in the state directory shows more"))
	}
	path, release, err := c.State.Socket(statedir.ControlSocket)
	if err != nil {
		return append(out, newFailure("proxy", err.Error(), "codeforge down, then codeforge up"))
	}
	defer release()
	client := proxyapi.NewClient(path)
	defer client.Close()
	h, err := client.FetchHealth(ctx)
	switch {
	case err != nil:
		out = append(out, newFailure("proxy", err.Error(), "codeforge down, then codeforge up"))
	case !h.Ready:
		out = append(out, newFailure("proxy", h.Problem, "see log/codeforge.log in the state directory"))
	default:
		out = append(out, newOK("proxy", "answers"))
	}
	return out
}

// checkPort checks that the MCP port is free or used by CodeForge.
func checkPort(ctx context.Context, c Config) []Finding {
	if up, err := c.State.ReadUp(); err == nil {
		return []Finding{newOK("port", fmt.Sprintf("%d is used by CodeForge", up.Port))}
	}
	// Any free port will do.
	if c.Port == 0 {
		return nil
	}
	if _, err := embedded.ChoosePort(ctx, c.Port); err != nil {
		// CodeForge itself may hold the port, in Docker or as another user.
		if place, locateErr := mcpclient.LocateServer(ctx, c.Server); locateErr == nil &&
			mcpclient.CheckReady(ctx, c.Server, place) == nil {
			return []Finding{newOK("port", fmt.Sprintf("%d is used by CodeForge, in Docker or started elsewhere", c.Port))}
		}
		return []Finding{newWarning("port", err.Error(), "")}
	}
	return []Finding{newOK("port", fmt.Sprintf("%d is free", c.Port))}
}

// checkConfiguration reports the findings of codeforge check, and the number of active APIs.
func checkConfiguration(_ context.Context, c Config) []Finding {
	var out []Finding
	valid := []Finding{newOK("settings", "every value is valid")}
	for _, p := range c.Problems {
		f := Finding{Check: "apis", Status: Fail, Text: p.Text}
		if p.Severity == "warning" {
			f.Status = Warn
		}
		switch p.File {
		case filepath.Base(c.Dotenv):
			f.Check, valid = "settings", nil
		case c.Settings.MCPTokensFile:
			f.Check = "tenants"
		}
		out = append(out, f)
	}
	out = append(valid, out...)
	if c.Catalog == nil {
		return out
	}
	active := 0
	for _, a := range c.Catalog.APIs() {
		if a.Active {
			active++
		}
	}
	return append(out, newOK("apis", fmt.Sprintf("%d of %d active", active, len(c.Catalog.APIs()))))
}

// checkFiles checks the permissions of secret files. The catalog checks config.json.
func checkFiles(_ context.Context, c Config) []Finding {
	if runtime.GOOS == "windows" {
		return []Finding{newSkip("permissions", "not checked on this system")}
	}
	var out []Finding
	if info, err := os.Stat(c.Dotenv); err == nil {
		values, _ := settings.ReadFile(c.Dotenv) // configuration reports mistakes
		secret := ""
		for _, name := range append(settings.InFile(), "UPSTREAM_PROXY") {
			if values[name] != "" {
				secret = name
			}
		}
		if secret != "" && info.Mode().Perm()&0o077 != 0 {
			text := fmt.Sprintf("%s holds %s and other users can read it (mode %o)", c.Dotenv, secret, info.Mode().Perm())
			out = append(out, newWarning("permissions", text, "chmod 600 "+c.Dotenv))
		} else {
			out = append(out, newOK("permissions", c.Dotenv))
		}
	}
	for _, f := range []struct{ path, found, fix string }{
		{c.State.Path(), "other users can access " + c.State.Path(), "chmod 700 "},
		{c.State.Join("ca-private", "ca.key"), "other users can read the key of the certificate authority", "chmod 600 "},
		{c.State.Join("tokens"), "other users can enter the folder of tokens", "chmod 700 "},
	} {
		info, err := os.Stat(f.path)
		switch {
		case err != nil: // embedded mode has not made it
		case info.Mode().Perm()&0o077 != 0:
			out = append(out, newFailure("permissions", fmt.Sprintf("%s (mode %o)", f.found, info.Mode().Perm()), f.fix+f.path))
		case f.path == c.State.Path():
			out = append(out, newOK("permissions", f.path))
		}
	}
	return out
}

// expirySoon is the time before the expiry of a certificate from which doctor warns.
const expirySoon = 30 * 24 * time.Hour

// checkCA checks the certificate that the sandbox trusts.
func checkCA(text []byte, now time.Time) Finding {
	const fix = "codeforge down, remove the folders ca-private and ca-public in the state directory, codeforge up"
	block, _ := pem.Decode(text)
	if block == nil {
		return newFailure("certificate authority", "the certificate of the proxy's authority is not PEM", fix)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return newFailure("certificate authority",
			"the certificate of the proxy's authority cannot be parsed: "+err.Error(), fix)
	}
	until := cert.NotAfter.Format("2006-01-02")
	switch {
	case now.Before(cert.NotBefore):
		text := "valid only from " + cert.NotBefore.Format(time.RFC3339) + " on"
		return newFailure("certificate authority", text, "check this machine's clock; if it is right: "+fix)
	case now.After(cert.NotAfter):
		return newFailure("certificate authority", "expired on "+until, fix)
	case now.Add(expirySoon).After(cert.NotAfter):
		return newWarning("certificate authority", "expires on "+until, fix)
	}
	return newOK("certificate authority", "valid until "+until+", "+strings.TrimPrefix(cert.Subject.CommonName, "CN="))
}
