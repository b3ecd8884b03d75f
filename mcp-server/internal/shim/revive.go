package shim

import (
	"context"

	"github.com/moby/moby/client"
)

// revive starts the container where the engine has given up on it. The engine starts what shares another container's
// network once, and no more when the other one was not up yet: after a reboot, a restart of the engine, or when both
// ended at once. A container that somebody stopped has no such error and stays stopped. Nothing here is the caller's
// choice, and mcp-server asks again by itself.
func (s *Server) revive(ctx context.Context) {
	name := s.cfg.Spec.Container
	got, err := s.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if err != nil || got.Container.State == nil {
		return
	}
	state := got.Container.State
	if state.Running || state.Restarting || state.Error == "" {
		return
	}
	_, err = s.engine.ContainerStart(ctx, name, client.ContainerStartOptions{})
	s.cfg.Log.Warn("started the container, which the engine had failed to",
		"container", name, "engine", state.Error, "error", err)
}
