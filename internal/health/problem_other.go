//go:build !linux

package health

import "errors"

func publish(string) (func(), error) { return nil, errors.ErrUnsupported }

// Problem returns "": only containers have a problem file, and they run Linux.
func Problem() string { return "" }
