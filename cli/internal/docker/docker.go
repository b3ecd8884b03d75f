// Package docker reaches the operator's socket in mcp-server's container, by docker exec. Whoever may use the engine
// owns the stack already, on every system that docker runs on: this opens no port, and needs no secret of its own.
package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scheme begins the address of a container: docker://NAME.
const Scheme = "docker://"

// Service is the name of mcp-server in the compose file, and Proxy that of the proxy.
const (
	Service = "mcp-server"
	Proxy   = "proxy"
)

// findTime is how long the engine may take to list containers.
const findTime = 5 * time.Second

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

// CheckName says what is wrong with the name of a container.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%s%q: want %sCONTAINER, e.g. %scodeforge-mcp-server-1", Scheme, name, Scheme, Scheme)
	}
	return nil
}

// container is a running mcp-server.
type container struct{ name, project, dir string }

// Find is the name of mcp-server's container in the stack of the folder home, or empty if there is none, or no engine.
// Project narrows it to the stack of this name, unless it is empty.
func Find(ctx context.Context, home, project string) (string, error) {
	all, err := running(ctx, Service)
	if err != nil {
		return "", nil //nolint:nilerr // no docker, or no engine: there is no stack to be found
	}
	return pick(all, home, project)
}

// running lists the containers of a service, in whatever stack.
func running(ctx context.Context, service string) ([]container, error) {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", "ps", "--filter", "label=com.docker.compose.service="+service, "--format",
		`{{.Names}}`+"\t"+`{{.Label "com.docker.compose.project"}}`+"\t"+
			`{{.Label "com.docker.compose.project.working_dir"}}`)
	out, err := cmd.Output()
	return list(out, service), err
}

// FindProxy is the name of the proxy's container in the stack of which server is mcp-server's container.
func FindProxy(ctx context.Context, server string) (string, error) {
	servers, err := running(ctx, Service)
	if err != nil {
		return "", fmt.Errorf("docker ps: %w", err)
	}
	proxies, err := running(ctx, Proxy)
	if err != nil {
		return "", fmt.Errorf("docker ps: %w", err)
	}
	return beside(servers, proxies, server)
}

// beside chooses the container that is in one stack with the named one.
func beside(servers, proxies []container, server string) (string, error) {
	for _, s := range servers {
		for _, p := range proxies {
			if s.name == server && p.project == s.project && p.dir == s.dir {
				return p.name, nil
			}
		}
	}
	return "", fmt.Errorf("no %s runs in the stack of %s", Proxy, server)
}

// list parses what docker ps printed of the containers of a service. A container has the labels of its image too, whose
// author can claim any stack and folder, but not the name: Compose chose that, or the user.
func list(out []byte, service string) []container {
	var all []container
	for line := range bytes.Lines(out) {
		f := strings.Split(strings.TrimRight(string(line), "\r\n"), "\t")
		if len(f) == 3 && CheckName(f[0]) == nil && named(f[0], f[1], service) {
			all = append(all, container{f[0], f[1], f[2]})
		}
	}
	return all
}

// named reports whether a name is one that Compose gives: PROJECT-SERVICE-NUMBER.
func named(name, project, service string) bool {
	number, ok := strings.CutPrefix(name, project+"-"+service+"-")
	_, err := strconv.ParseUint(number, 10, 16)
	return ok && err == nil
}

// pick chooses the container of the stack that was started in home.
func pick(all []container, home, project string) (string, error) {
	var names []string
	for _, c := range all {
		if same(c.dir, home) && (project == "" || c.project == project) {
			names = append(names, c.name)
		}
	}
	if len(names) > 1 {
		slices.Sort(names)
		return "", fmt.Errorf("%d stacks of this folder run (%s): choose one with --url %s%s, or COMPOSE_PROJECT_NAME",
			len(names), strings.Join(names, ", "), Scheme, names[0])
	}
	return strings.Join(names, ""), nil
}

// same reports whether two paths lead to one folder.
func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// errClosed is what a connection says after Close.
var errClosed = errors.New("the connection is closed")
