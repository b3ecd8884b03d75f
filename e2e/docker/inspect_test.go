package docker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// services are those of docker-compose.yml.
var services = []string{"sandbox-net", "sandbox", "proxy", "docker-shim", "mcp-server"}

// inspected are the fields of docker inspect that these tests read.
type inspected struct {
	ID    string `json:"Id"`
	Image string
	State struct {
		Pid    int
		Health struct{ Status string }
	}
	Config struct {
		User       string
		Env        []string
		Entrypoint []string
		Cmd        []string
	}
	HostConfig struct {
		Privileged, ReadonlyRootfs, PublishAllPorts        bool
		CapAdd, CapDrop, SecurityOpt                       []string
		Binds, Devices, ExtraHosts, GroupAdd               []any
		NetworkMode, PidMode, IpcMode, UTSMode, UsernsMode string
		PidsLimit, Memory                                  int64
		RestartPolicy                                      struct{ Name string }
		LogConfig                                          struct {
			Type   string
			Config map[string]string
		}
		PortBindings map[string][]struct{ HostIp, HostPort string } //nolint:revive // the engine's spelling
		Sysctls      map[string]string
		Tmpfs        map[string]string
	}
	Mounts []struct {
		Type, Name, Source, Destination string
		RW                              bool
	}
	NetworkSettings struct {
		Networks map[string]struct{ IPAddress string }
	}
}

func inspect(t *testing.T, service string) inspected {
	t.Helper()
	var list []inspected
	if err := json.Unmarshal([]byte(docker(t, "inspect", stack.Container(service))), &list); err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// facts are the privileges that may differ between services: the golden table of least privilege.
func facts(c inspected) map[string]string {
	caps := slices.Clone(c.HostConfig.CapAdd)
	for i := range caps {
		caps[i] = strings.TrimPrefix(caps[i], "CAP_")
	}
	sort.Strings(caps)
	nets := []string{}
	for name := range c.NetworkSettings.Networks {
		nets = append(nets, name[strings.LastIndex(name, "_")+1:])
	}
	sort.Strings(nets)
	return map[string]string{
		"capabilities": strings.Join(caps, " "), "user": c.Config.User, "networks": strings.Join(nets, " "),
		"groups": fmt.Sprint(c.HostConfig.GroupAdd...),
	}
}

// Promise: least-privilege
func TestLeastPrivilege(t *testing.T) {
	want := map[string]map[string]string{
		"sandbox-net": {"capabilities": "NET_ADMIN", "user": "", "networks": "sandbox-net", "groups": ""},
		"sandbox":     {"capabilities": "KILL SETGID SETUID", "user": "0:0", "networks": "", "groups": ""},
		"proxy": {"capabilities": "DAC_READ_SEARCH NET_ADMIN NET_BIND_SERVICE", "user": "0:19998",
			"networks": "egress-net public-net sandbox-net", "groups": ""}, // public-net is the tests'
		"docker-shim": {"capabilities": "", "user": "0:19998", "networks": "none", "groups": ""},
		"mcp-server":  {"capabilities": "", "user": "19998:19998", "networks": "egress-net", "groups": "20000"},
	}
	profile, err := os.ReadFile(filepath.Join(root, "sandbox-image", "seccomp.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			c := inspect(t, service)
			h := c.HostConfig
			if diff := cmp.Diff(want[service], facts(c)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if h.Privileged || !h.ReadonlyRootfs || h.PublishAllPorts || len(h.Devices) > 0 {
				t.Errorf("privileged, writable or more: %+v", h)
			}
			if hosts := fmt.Sprint(h.ExtraHosts...); (hosts != "") != (service == "proxy") || service == "proxy" && hosts != "host.docker.internal:host-gateway" {
				t.Errorf("extra hosts: %q", hosts)
			}
			if !slices.Equal(h.CapDrop, []string{"ALL"}) {
				t.Errorf("drops %v", h.CapDrop)
			}
			if h.PidMode != "" || h.UTSMode != "" || h.UsernsMode != "" || h.IpcMode != "private" {
				t.Errorf("shares pid %q uts %q user %q ipc %q", h.PidMode, h.UTSMode, h.UsernsMode, h.IpcMode)
			}
			if h.PidsLimit <= 0 || h.Memory <= 0 {
				t.Errorf("no limit: %d pids, %d bytes", h.PidsLimit, h.Memory)
			}
			if h.RestartPolicy.Name != "unless-stopped" || h.LogConfig.Config["max-size"] == "" || h.LogConfig.Config["max-file"] == "" {
				t.Errorf("restart %q, log %v", h.RestartPolicy.Name, h.LogConfig)
			}
			if c.State.Health.Status != "healthy" {
				t.Errorf("health: %q", c.State.Health.Status)
			}
			checkSecurity(t, h.SecurityOpt, profile)
			for port, at := range h.PortBindings {
				for _, b := range at {
					if service != "mcp-server" || b.HostIp != "127.0.0.1" {
						t.Errorf("publishes %s on %s:%s", port, b.HostIp, b.HostPort)
					}
				}
			}
			for path, options := range h.Tmpfs {
				for _, o := range []string{"noexec", "nosuid", "nodev", "size="} {
					if !strings.Contains(options, o) {
						t.Errorf("tmpfs %s has no %s: %s", path, o, options)
					}
				}
				checkTmpfs(t, fmt.Sprintf("/proc/%d/root%s", c.State.Pid, path), options)
			}
		})
	}
}

// checkTmpfs checks the mode and the group of a tmpfs. Some engines use those of the image's folder, and ignore options.
func checkTmpfs(t *testing.T, path, options string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Error(err)
		return
	}
	for option := range strings.SplitSeq(options, ",") {
		name, value, _ := strings.Cut(option, "=")
		got := ""
		switch name {
		case "mode":
			got = strconv.FormatUint(uint64(st.Mode&0o7777), 8)
		case "uid":
			got = strconv.FormatUint(uint64(st.Uid), 10)
		case "gid":
			got = strconv.FormatUint(uint64(st.Gid), 10)
		default:
			continue
		}
		if got != value {
			t.Errorf("%s: %s is %s, want %s", path, name, got, value)
		}
	}
}

// checkSecurity checks no-new-privileges and the seccomp profile, as the engine reports them.
func checkSecurity(t *testing.T, opts []string, profile []byte) {
	t.Helper()
	var want, got any
	if err := json.Unmarshal(profile, &want); err != nil {
		t.Fatal(err)
	}
	nnp := false
	for _, o := range opts {
		nnp = nnp || o == "no-new-privileges:true" || o == "no-new-privileges"
		if text, ok := strings.CutPrefix(o, "seccomp="); ok {
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Errorf("seccomp: %v", err)
			}
		}
	}
	if !nnp {
		t.Errorf("no-new-privileges is missing: %v", opts)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the seccomp profile: -file +engine\n%s", diff)
	}
}

// TestEdges checks every mount of every service: each volume is mounted only where it should be, and the engine's
// socket and apis/ are in one container each.
// Promise: no-other-way-out, docker-socket
func TestEdges(t *testing.T) {
	want := []string{
		"/apis proxy ro",
		"/database-ca mcp-server ro",
		"/database-ca proxy ro",
		"/database-url mcp-server ro",
		"/docker.sock docker-shim rw",
		"/mcp-auth-token mcp-server ro",
		"/mcp-tokens mcp-server ro",
		"/oidc-ca mcp-server ro",
		"/oidc-secret mcp-server ro",
		"/proxy-database-url proxy ro",
		"/redacting-strings mcp-server ro",
		"/redacting-strings proxy ro",
		"/resolv.conf sandbox ro",
		"/upstream-ca.pem proxy ro",
		"audit proxy rw",
		"ca-private proxy rw",
		"ca-public proxy rw",
		"ca-public sandbox ro",
		"journal mcp-server rw",
		"packages sandbox rw",
		"pins mcp-server rw",
		"programs sandbox ro",
		"run-control mcp-server rw",
		"run-control proxy rw",
		"run-net sandbox ro",
		"run-net sandbox-net rw",
		"run-shim docker-shim rw",
		"run-shim mcp-server rw",
		"sandbox-state sandbox rw",
		"skills mcp-server rw",
		"skills sandbox rw",
		"tokens proxy rw",
	}
	var got []string
	for _, service := range services {
		for _, m := range inspect(t, service).Mounts {
			name := strings.TrimPrefix(m.Name, "codeforge-e2e_")
			if m.Type == "bind" {
				name = "/" + filepath.Base(m.Destination)
			}
			if name == "/ca.pem" { // the tests' own
				continue
			}
			access := "ro"
			if m.RW {
				access = "rw"
			}
			got = append(got, name+" "+service+" "+access)
		}
	}
	sort.Strings(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// status is /proc/PID/status as a table.
func status(t *testing.T, pid int) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		out[name] = strings.Join(strings.Fields(value), " ")
	}
	return out
}

// Capability bits of capability.h.
const (
	dacReadSearch = 1 << 2
	kill          = 1 << 5
	setgid        = 1 << 6
	setuid        = 1 << 7
)

// TestProcesses checks with the kernel which privileges the main process of each container has once it is up.
func TestProcesses(t *testing.T) {
	want := map[string]uint64{"sandbox": setuid | setgid | kill, "proxy": dacReadSearch}
	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			s := status(t, inspect(t, service).State.Pid)
			for _, set := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb"} {
				got, err := strconv.ParseUint(s[set], 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				if got&^want[service] != 0 || set == "CapEff" && got != want[service] {
					t.Errorf("%s is %#x, want %#x", set, got, want[service])
				}
			}
			if s["NoNewPrivs"] != "1" || s["Seccomp"] != "2" {
				t.Errorf("NoNewPrivs %s, Seccomp %s", s["NoNewPrivs"], s["Seccomp"])
			}
		})
	}
}

// TestNoSecret searches everything in images and containers for secrets, except the proxy's memory and apis/.
// Promise: never-printed
func TestNoSecret(t *testing.T) {
	works(t)
	key := authorityKey(t)
	find := func(t *testing.T, what string, data []byte) {
		t.Helper()
		if where := leak(data); where != "" {
			t.Errorf("%s holds %s", what, where)
		}
		if bytes.Contains(data, []byte(token)) {
			t.Errorf("%s holds the token of the MCP endpoint", what)
		}
		if bytes.Contains(data, key) {
			t.Errorf("%s holds the authority's key", what)
		}
	}
	for _, service := range services {
		c := inspect(t, service)
		find(t, service+": inspect", []byte(docker(t, "inspect", c.ID)))
		find(t, service+": history", []byte(docker(t, "history", "--no-trunc", c.Image)))
		find(t, service+": image", []byte(docker(t, "inspect", c.Image)))
		find(t, service+": files", output(t, "docker", "export", c.ID))
		find(t, service+": log", []byte(docker(t, "logs", c.ID)))
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.State.Pid))
		if err != nil {
			t.Fatal(err)
		}
		find(t, service+": environment", environ)
	}
	for _, volume := range []string{"run-control", "run-shim", "run-net", "ca-public", "packages", "programs", "sandbox-state", "skills", "journal"} {
		find(t, "volume "+volume, output(t, "docker", "run", "--rm", "--network", "none", "-v", "codeforge-e2e_"+volume+":/v:ro",
			"debian:bookworm-slim", "tar", "c", "--exclude=*.sock", "/v"))
	}
}

// authorityKey is the middle part of the proxy's private key file.
func authorityKey(t *testing.T) []byte {
	t.Helper()
	data := output(t, "docker", "run", "--rm", "--network", "none", "-v", "codeforge-e2e_ca-private:/v:ro", "debian:bookworm-slim", "cat", "/v/ca.key")
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	if len(lines) < 3 || len(lines[1]) < 32 {
		t.Fatalf("ca.key is no PEM file: %d lines", len(lines))
	}
	return lines[1]
}

func output(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = io.Discard
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return out
}
