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
	"strings"
	"time"
)

// Scheme begins the address of a container: docker://NAME.
const Scheme = "docker://"

// Service is the name of mcp-server in the compose file.
const Service = "mcp-server"

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
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", "ps", "--filter", "label=com.docker.compose.service="+Service, "--format",
		`{{.Names}}`+"\t"+`{{.Label "com.docker.compose.project"}}`+"\t"+
			`{{.Label "com.docker.compose.project.working_dir"}}`)
	out, err := cmd.Output()
	if err != nil {
		return "", nil //nolint:nilerr // no docker, or no engine: there is no stack to be found
	}
	return pick(list(out), home, project)
}

// list parses what docker ps printed.
func list(out []byte) []container {
	var all []container
	for line := range bytes.Lines(out) {
		f := strings.Split(strings.TrimRight(string(line), "\r\n"), "\t")
		if len(f) == 3 && CheckName(f[0]) == nil {
			all = append(all, container{f[0], f[1], f[2]})
		}
	}
	return all
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
