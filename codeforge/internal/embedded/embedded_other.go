//go:build !linux

package embedded

import (
	"context"
	"io"
)

// Run is not possible here.
func Run(context.Context, Config, func(Ready) error) error { return ErrUnsupported }

// Supervise is not possible here.
func Supervise(context.Context, []string, io.Writer) error { return ErrUnsupported }

// Probe is not possible here.
func Probe(context.Context, []string) error { return ErrUnsupported }

// RunProbe is not possible here.
func RunProbe(context.Context) error { return ErrUnsupported }
