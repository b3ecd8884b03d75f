//go:build !linux

package health

import "errors"

func publish(string) (func(), error) { return nil, errors.ErrUnsupported }

// Problem is empty: only containers have one, and those run Linux.
func Problem() string { return "" }
