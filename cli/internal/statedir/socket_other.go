//go:build !linux

package statedir

// Socket returns a path to one of the sockets.
func (d Dir) Socket(name string) (path string, release func(), err error) {
	return d.Join(socketFolder(name), name), func() {}, nil
}
