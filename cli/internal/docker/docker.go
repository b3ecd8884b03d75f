// Package docker reaches the operator's socket in mcp-server's container through docker exec. Users who may use the
// engine already control the stack, on every system with Docker. So this way needs neither a port nor a secret.
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

// Scheme is the start of a container's address: docker://NAME.
const Scheme = "docker://"

// Service is the name of mcp-server in the compose file, and Proxy the name of the proxy.
const (
	Service = "mcp-server"
	Proxy   = "proxy"
)

// findTime limits the engine's time to list containers.
const findTime = 5 * time.Second

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

// CheckName returns an error if the name of a container is invalid.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%s%q: want %sCONTAINER, e.g. %scodeforge-mcp-server-1", Scheme, name, Scheme, Scheme)
	}
	return nil
}

// serverContainer is a running mcp-server.
type serverContainer struct{ name, project, dir string }

// FindContainer returns the name of mcp-server's container in the stack of the folder home. It returns "" if there is
// no such container or no engine. If project is not empty, only the stack of that name counts.
func FindContainer(ctx context.Context, home, project string) (string, error) {
	all, err := listRunning(ctx, Service)
	if err != nil {
		return "", nil //nolint:nilerr // no docker, or no engine: there is no stack to be found
	}
	return pickContainer(all, home, project)
}

func listRunning(ctx context.Context, service string) ([]serverContainer, error) {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", "ps", "--filter", "label=com.docker.compose.service="+service, "--format",
		`{{.Names}}`+"\t"+`{{.Label "com.docker.compose.project"}}`+"\t"+
			`{{.Label "com.docker.compose.project.working_dir"}}`)
	out, err := cmd.Output()
	return parseContainers(out, service), err
}

// FindProxy returns the name of the proxy's container in the stack of mcp-server's container server.
func FindProxy(ctx context.Context, server string) (string, error) {
	servers, err := listRunning(ctx, Service)
	if err != nil {
		return "", fmt.Errorf("docker ps: %w", err)
	}
	proxies, err := listRunning(ctx, Proxy)
	if err != nil {
		return "", fmt.Errorf("docker ps: %w", err)
	}
	return findBeside(servers, proxies, server)
}

// findBeside returns the container that is in one stack with the named one.
func findBeside(servers, proxies []serverContainer, server string) (string, error) {
	for _, s := range servers {
		for _, p := range proxies {
			if s.name == server && p.project == s.project && p.dir == s.dir {
				return p.name, nil
			}
		}
	}
	return "", fmt.Errorf("no %s runs in the stack of %s", Proxy, server)
}

// parseContainers parses the output of docker ps for a service. A container also has the labels of its image, whose
// author can claim any stack and folder. Only Compose or the user chooses the name, so the name must match.
func parseContainers(out []byte, service string) []serverContainer {
	var all []serverContainer
	for line := range bytes.Lines(out) {
		f := strings.Split(strings.TrimRight(string(line), "\r\n"), "\t")
		if len(f) == 3 && CheckName(f[0]) == nil && isComposeName(f[0], f[1], service) {
			all = append(all, serverContainer{f[0], f[1], f[2]})
		}
	}
	return all
}

// isComposeName reports whether a name has Compose's form: PROJECT-SERVICE-NUMBER.
func isComposeName(name, project, service string) bool {
	number, ok := strings.CutPrefix(name, project+"-"+service+"-")
	_, err := strconv.ParseUint(number, 10, 16)
	return ok && err == nil
}

// pickContainer returns the container of the stack that was started in home.
func pickContainer(all []serverContainer, home, project string) (string, error) {
	var names []string
	for _, c := range all {
		if isSameFolder(c.dir, home) && (project == "" || c.project == project) {
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

// isSameFolder reports whether two paths lead to one folder.
func isSameFolder(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// errClosed is the error of a connection after Close.
var errClosed = errors.New("the connection is closed")
