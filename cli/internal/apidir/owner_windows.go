package apidir

import "os"

// lockFolder does not wait: Windows cannot lock folders.
func lockFolder(string) (done func(), err error) { return func() {}, nil }

// giveToOwner does nothing: Windows has no root.
func giveToOwner(_, _ string) error { return nil }

// keepOwner does nothing: a new file belongs to the owner of its folder.
func keepOwner(os.FileInfo, string) error { return nil }
