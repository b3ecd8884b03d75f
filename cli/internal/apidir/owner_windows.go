package apidir

import "os"

// alone keeps nobody waiting: folders cannot be locked on Windows.
func alone(string) (done func(), err error) { return func() {}, nil }

// sameOwner does nothing: Windows has no root.
func sameOwner(_, _ string) error { return nil }

// keepOwner has nothing to do: a new file belongs to its folder's owner.
func keepOwner(os.FileInfo, string) error { return nil }
