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

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/mtls"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
	"github.com/codeforge-mcp/codeforge/skills"
)

// listenForPod listens for mcp-server in another pod, after the socket is open. Without --listen, the listener is nil.
func listenForPod(ctx context.Context, f serveFlags) (net.Listener, error) {
	if f.listen == "" {
		return nil, nil
	}
	if f.isProxyShared() {
		return mtls.Listen(ctx, f.listen, f.identity, mtls.MCPServer)
	}
	// The parent of the socket's directory is a volume. The sandbox and mcp-server must be able to enter it.
	if err := os.Chmod(filepath.Dir(filepath.Dir(f.socket)), 0o755); err != nil { //nolint:gosec // the directory is closed
		return nil, err
	}
	return mtls.Listen(ctx, f.listen, f.identity, mtls.MCPServer)
}

// firstGeneration returns the generation before the first one of a new pod. If the pod shares its proxy, that is the
// time in milliseconds, because the proxy may have known another pod with the same address.
func firstGeneration(f serveFlags, now time.Time) uint64 {
	if !f.isProxyShared() {
		return 0
	}
	return uint64(now.UnixMilli()) //nolint:gosec // after 1970
}

// serveHealth serves the kubelet's readiness probe. In other pods the probe runs a command in the container; here that
// command would be a process of the slot's user.
func serveHealth(ctx context.Context, address string, sandbox sandboxapi.Sandbox) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	return rpc.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if h := sandbox.Health(); !h.Ready {
			rpc.WriteError(w, http.StatusServiceUnavailable, h.Problem)
		}
	}))
}

// followAuthority keeps the certificate of the proxy's authority in the file of --ca. A restarted proxy has a new one.
func followAuthority(ctx context.Context, f serveFlags, log *slog.Logger) {
	client := &http.Client{Timeout: authorityTime, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			// Loaded for each connection, because a Secret can be renewed.
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
		// The same error every two seconds would fill the log.
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			log.Warn("the certificate of the proxy's authority cannot be fetched, trying again", "error", said)
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

// fetchAuthority fetches the certificate, and writes it if it differs from the file.
func fetchAuthority(ctx context.Context, client *http.Client, f serveFlags) error {
	// The scheme is http because the dialer already secures the connection (mutual TLS).
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
		return fmt.Errorf("the proxy answered %d with %d bytes that are not a certificate", resp.StatusCode, len(text))
	}
	// A rewrite with the same content would replace all warm interpreters.
	if now, err := os.ReadFile(f.ca); err == nil && bytes.Equal(now, text) {
		return nil
	}
	return atomicfile.Write(f.ca, text, 0o644)
}

// checkClosed returns an error unless the network stops a connection to an address that no sandbox may reach. The
// address is the API server's, which any other pod can reach. A connection means that no NetworkPolicy restricts code.
// Any other failure of the attempt proves neither.
func checkClosed(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, closedTime)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp4", address)
	switch {
	case err == nil:
		_ = c.Close()
	case isConnectionStopped(err):
		return nil
	default:
		return fmt.Errorf("checking whether the pod can connect to %s: %w", address, err)
	}
	//defence:network-closed instead nil
	return fmt.Errorf("the pod can connect to %s: the cluster's network does not enforce the NetworkPolicy of the "+
		"sandboxes, and code would reach any address without the proxy", address)
}

// isConnectionStopped reports whether the network stopped a connection, by silence or by a refusal.
func isConnectionStopped(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout() ||
		slices.ContainsFunc([]error{
			syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EACCES, syscall.EPERM,
		}, func(e error) bool { return errors.Is(err, e) })
}

// closedTime bounds an attempt to connect to an address whose network drops packets silently.
const closedTime = 3 * time.Second

// closeFolders gives the container's folders the modes and groups that docker-compose.yml asks for. Kubernetes makes
// volumes that all users can write, and an engine with runc 1.1.5 gives a tmpfs the mode of the image's folder. Only
// these modes keep MCP servers and tenants' runs from the folders of other runs: they are not in the group of the slots
// for runs. closeFolders needs the groups that the jail has joined. In a pod it writes the shipped skills to their
// volume, in which code cannot write, because slots share that volume and mcp-server does not see it. homes is
// sandboxapi.HomesDir.
func closeFolders(f serveFlags, homes string) error {
	isPod := f.listen != ""
	skills := folder{f.skills, slot.GroupID, 0o770 | fs.ModeSetgid}
	if isPod {
		skills.mode = 0o750
	}
	folders := []folder{
		{f.tmp, slot.GroupID, 0o770 | fs.ModeSticky}, {f.runs, slot.GroupID, 0o750}, {f.code, 0, 0o711},
		{homes, 0, 0o711}, skills,
	}
	if isPod {
		folders = append(folders, folder{f.state, 0, 0o711})
	}
	if isPod && f.servers > 0 { // without them, the folder is the image's, which is read-only
		folders = append(folders, folder{f.packages, 0, 0o755})
	}
	var errs []error
	for _, v := range folders {
		changed, err := v.close()
		if err == nil && changed && isPod && v.path == f.skills {
			err = shipSkills(f.skills)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("closing a folder: %w", err))
		}
	}
	return errors.Join(errs...)
}

// folder is a folder of the container with the group and the mode that it must have.
type folder struct {
	path  string
	group int
	mode  os.FileMode
}

// close changes the folder's group and mode if they differ, and reports whether they did. It ignores a missing folder,
// and a volume that is mounted read-only: mcp-server's image sets its mode.
func (v folder) close() (changed bool, err error) {
	info, err := os.Stat(v.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	group := int(info.Sys().(*syscall.Stat_t).Gid) //nolint:forcetypeassert // of a file on Linux
	//defence:closed-folders permits
	if group == v.group && info.Mode() == v.mode|fs.ModeDir {
		return false, nil
	}
	err = errors.Join(os.Chown(v.path, -1, v.group), os.Chmod(v.path, v.mode))
	if errors.Is(err, unix.EROFS) {
		err = nil
	}
	return true, err
}

// shipSkills writes the shipped skills to a directory, readable for all users who can enter it.
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
