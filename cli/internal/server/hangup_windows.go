package server

// hungUp returns false: on Windows only a failed write shows that the reader has gone.
func hungUp(any) bool { return false }
