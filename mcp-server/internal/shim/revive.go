package shim

import (
	"context"

	"github.com/moby/moby/client"
)

// reviveContainer starts the container if the engine has given up on it. The engine tries only once to start a
// container that shares another one's network. It fails if the other one is not running yet: after a reboot, after a
// restart of the engine, or if both ended together. A container that a person stopped has no error and stays stopped.
// The caller cannot influence this; mcp-server tries again later.
func (s *Server) reviveContainer(ctx context.Context) {
	name := s.cfg.Spec.Container
	got, err := s.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if err != nil || got.Container.State == nil {
		return
	}
	state := got.Container.State
	// A stopped container without an error was stopped by a person.
	if state.Running || state.Restarting || state.Error == "" {
		return
	}
	_, err = s.engine.ContainerStart(ctx, name, client.ContainerStartOptions{})
	s.cfg.Log.Warn("started the container, which the engine had failed to start",
		"container", name, "engine", state.Error, "error", err)
}
