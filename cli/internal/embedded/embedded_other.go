//go:build !linux

package embedded

import (
	"context"
	"io"
)

// Run returns ErrUnsupported.
func Run(context.Context, Config, func(Ready) error) error { return ErrUnsupported }

// Supervise returns ErrUnsupported.
func Supervise(context.Context, []string, io.Writer) error { return ErrUnsupported }

// ProbeKernel returns ErrUnsupported.
func ProbeKernel(context.Context, []string) error { return ErrUnsupported }

// RunProbe returns ErrUnsupported.
func RunProbe(context.Context) error { return ErrUnsupported }
