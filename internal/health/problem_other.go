//go:build !linux

package health

import "errors"

func publishProblem(string) (func(), error) { return nil, errors.ErrUnsupported }

// StartProblem returns "": only containers have a problem file, and they run Linux.
func StartProblem() string { return "" }
