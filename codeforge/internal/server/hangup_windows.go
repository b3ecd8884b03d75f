package server

// hungUp cannot be asked on Windows: a write fails there when the reader has gone.
func hungUp(any) bool { return false }
