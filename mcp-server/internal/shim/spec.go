package shim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// Spec is the only exec that the shim allows. Both sides use it: mcp-server requests exactly this exec, and the shim
// refuses all others.
type Spec struct {
	// Container is the container's name, never an ID.
	Container string
	// User is "uid:gid", numeric, so that no file of the container decides which user this is.
	User string
	// Cmd is the whole command line.
	Cmd []string
}

// SandboxSpec returns the exec of Docker mode: the byte stream to sandboxd in the named container, as the only user
// that sandboxd accepts.
func SandboxSpec(container string) Spec {
	return Spec{
		Container: container,
		User:      fmt.Sprintf("%d:%d", slot.ServiceUID, slot.ServiceUID),
		Cmd:       []string{"/usr/local/bin/sandboxd", "attach", "--socket", "/run/sandboxd/sandboxd.sock"},
	}
}

// createBody is the body of an exec create, as moby/moby/client sends it.
type createBody struct {
	User         string
	Privileged   bool
	Tty          bool
	AttachStdin  bool
	AttachStdout bool
	AttachStderr bool
	DetachKeys   string
	Env          []string
	WorkingDir   string
	Cmd          []string
	// ConsoleSize is only valid with a terminal, which is never allowed.
	ConsoleSize *[2]uint
}

type startBody struct {
	Detach      bool
	Tty         bool
	ConsoleSize *[2]uint
}

// checkCreate returns why the body differs from the one that the spec allows, or nil.
func (s Spec) checkCreate(data []byte) error {
	var b createBody
	err := decodeStrict(data, map[string]any{
		"User": &b.User, "Privileged": &b.Privileged, "Tty": &b.Tty, "AttachStdin": &b.AttachStdin,
		"AttachStdout": &b.AttachStdout, "AttachStderr": &b.AttachStderr, "DetachKeys": &b.DetachKeys, "Env": &b.Env,
		"WorkingDir": &b.WorkingDir, "Cmd": &b.Cmd, "ConsoleSize": &b.ConsoleSize,
	})
	switch {
	case err != nil:
		return err
	case b.Privileged:
		return errors.New("field Privileged must be false")
	case b.User != s.User:
		return fmt.Errorf("field User must be %q", s.User)
	case !slices.Equal(b.Cmd, s.Cmd):
		return fmt.Errorf("field Cmd must be %q", s.Cmd)
	case len(b.Env) != 0:
		return errors.New("field Env must be empty")
	case b.WorkingDir != "":
		return errors.New("field WorkingDir must be empty")
	case b.DetachKeys != "":
		return errors.New("field DetachKeys must be empty")
	case b.Tty || b.ConsoleSize != nil:
		return errors.New("a terminal is not allowed")
	case !b.AttachStdin || !b.AttachStdout || !b.AttachStderr:
		return errors.New("AttachStdin, AttachStdout and AttachStderr must be true")
	}
	return nil
}

// checkStart returns why the body is not an attached start without a terminal, or nil.
func checkStart(data []byte) error {
	var b startBody
	err := decodeStrict(data, map[string]any{"Detach": &b.Detach, "Tty": &b.Tty, "ConsoleSize": &b.ConsoleSize})
	switch {
	case err != nil:
		return err
	case b.Detach:
		return errors.New("field Detach must be false")
	case b.Tty || b.ConsoleSize != nil:
		return errors.New("a terminal is not allowed")
	}
	return nil
}
