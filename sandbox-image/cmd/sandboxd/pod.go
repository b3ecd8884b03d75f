package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/disarm"
	"github.com/codeforge-mcp/codeforge/internal/httpjson"
	"github.com/codeforge-mcp/codeforge/internal/mtls"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
	"github.com/codeforge-mcp/codeforge/skills"
)

// remote listens for mcp-server in another pod, when the socket is open. Nil: it is not told to.
func remote(ctx context.Context, f serveFlags) (net.Listener, error) {
	if f.listen == "" {
		return nil, nil
	}
	if f.shared() {
		return mtls.Listen(ctx, f.listen, f.identity, mtls.MCPServer)
	}
	// The volume of the socket's directory, which its owner has made there.
	if err := os.Chmod(filepath.Dir(filepath.Dir(f.socket)), 0o755); err != nil { //nolint:gosec // the directory is closed
		return nil, err
	}
	return mtls.Listen(ctx, f.listen, f.identity, mtls.MCPServer)
}

// firstGeneration is where the generations of a new pod begin. One that shares its proxy begins with the time, because
// the proxy may have known another pod by the same address.
func firstGeneration(f serveFlags, now time.Time) uint64 {
	if !f.shared() {
		return 0
	}
	return uint64(now.UnixMilli()) //nolint:gosec // after 1970
}

// serveHealth answers the kubelet whether the sandbox is ready, and nothing else. Commands in the container, as a probe
// otherwise is one, would be processes of the slot's user.
func serveHealth(ctx context.Context, address string, sandbox runapi.Sandbox) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	return httpjson.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if h := sandbox.Health(); !h.Ready {
			httpjson.Fail(w, http.StatusServiceUnavailable, h.Problem)
		}
	}))
}

// followAuthority keeps the certificate of the proxy's authority in the file of --ca. A proxy that starts again has
// another one.
func followAuthority(ctx context.Context, f serveFlags, log *slog.Logger) {
	client := &http.Client{Timeout: authorityTime, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			id, err := mtls.Load(f.identity)
			if err != nil {
				return nil, err
			}
			return id.Dial(ctx, address, mtls.Proxy)
		},
	}}
	tick := time.NewTicker(authorityPause)
	defer tick.Stop()
	for said := ""; ; {
		err := fetchAuthority(ctx, client, f)
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			log.Warn("no certificate of the proxy's authority, trying again", "error", said)
		} else if err == nil {
			said = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

const (
	authorityTime  = 5 * time.Second
	authorityPause = 2 * time.Second
	maxCertificate = 64 << 10
)

// fetchAuthority writes the certificate, if it is another one than there is.
func fetchAuthority(ctx context.Context, client *http.Client, f serveFlags) error {
	// http, because the connection is secured by its dialer.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.authority+"/", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxCertificate))
	if err != nil {
		return err
	}
	if block, _ := pem.Decode(text); resp.StatusCode != http.StatusOK || block == nil {
		return fmt.Errorf("the proxy answered %d and %d bytes that are no certificate", resp.StatusCode, len(text))
	}
	if now, err := os.ReadFile(f.ca); err == nil && bytes.Equal(now, text) {
		return nil
	}
	return atomicfile.Write(f.ca, text, 0o644)
}

// checkClosed returns an error unless connecting to an address that no sandbox may reach fails on the way. If it
// succeeds, nothing in the cluster keeps code from any address; if the attempt could not be made, nobody knows. The
// address is that of the API server, which every pod can reach otherwise.
func checkClosed(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, closedTime)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp4", address)
	switch {
	case err == nil:
		_ = c.Close()
	case stopped(err):
		return nil
	default:
		return fmt.Errorf("trying whether the pod can connect to %s: %w", address, err)
	}
	if disarm.Off("network-closed") {
		return nil
	}
	return fmt.Errorf("the pod can connect to %s: the cluster's network does not enforce the NetworkPolicy of the "+
		"sandboxes, and code would reach any address without the proxy", address)
}

// stopped reports whether a connection failed on the network, by silence or by a refusal.
func stopped(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout() ||
		slices.ContainsFunc([]error{
			syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EACCES, syscall.EPERM,
		}, func(e error) bool { return errors.Is(err, e) })
}

// closedTime bounds an attempt to connect to an address that is refused silently.
const closedTime = 3 * time.Second

// closeVolumes gives a pod's volumes the modes that Docker's have by docker-compose.yml: Kubernetes makes volumes that
// are open to all, those in memory with the sticky bit. It needs the groups that the jail has joined. The volume of
// the skills gets those that are shipped, and code cannot write there: slots share it, and mcp-server does not see it.
func closeVolumes(f serveFlags) error {
	var errs []error
	for _, v := range []struct {
		path  string
		group int
		mode  os.FileMode
	}{
		{f.tmp, slot.GroupID, 0o770 | fs.ModeSticky}, {f.runs, slot.GroupID, 0o750}, {f.skills, slot.GroupID, 0o750},
		{f.code, 0, 0o711}, {f.state, 0, 0o711}, {f.packages, 0, 0o755}, {runapi.HomesDir, 0, 0o711},
	} {
		info, err := os.Stat(v.path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&0o002 == 0 {
			continue
		}
		if err == nil && v.path == f.skills {
			err = shipSkills(f.skills)
		}
		if err == nil {
			err = errors.Join(os.Chown(v.path, -1, v.group), os.Chmod(v.path, v.mode))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("closing a volume: %w", err))
		}
	}
	return errors.Join(errs...)
}

// shipSkills writes the shipped skills into a directory, readable for all who can enter it.
func shipSkills(dir string) error {
	list, err := skills.Files.ReadDir(".")
	if err != nil {
		return err
	}
	for _, entry := range list {
		source, err := skills.Files.ReadFile(entry.Name())
		if err == nil {
			err = atomicfile.Write(filepath.Join(dir, entry.Name()), source, 0o644)
		}
		if err != nil {
			return fmt.Errorf("writing the shipped skill %s: %w", entry.Name(), err)
		}
	}
	return nil
}
