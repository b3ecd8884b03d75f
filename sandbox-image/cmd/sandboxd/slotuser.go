package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
)

// killOwnProcesses kills every other process of this process's user.
func killOwnProcesses() error {
	// kill(-1) as root would kill every process of the container (kill(2)).
	if os.Getuid() == 0 {
		return errors.New("reap: not as root")
	}
	if err := syscall.Kill(-1, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("reap: %w", err)
	}
	return nil
}

// printRemovedBytes prints the bytes of removed files of a device that this process's user still holds.
func printRemovedBytes(args []string, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("unnamed: want the number of a device")
	}
	device, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return fmt.Errorf("unnamed: %w", err)
	}
	pids, _, err := proc.ListOfUser(os.Getuid(), func(pid int) bool { return pid == os.Getpid() })
	if err != nil {
		return fmt.Errorf("unnamed: %w", err)
	}
	_, err = fmt.Fprint(stdout, proc.RemovedBytes(pids, device))
	return err
}

// printUsage prints the bytes in a directory of this process's user, plus those of removed files on its file system
// that the user still holds.
func printUsage(args []string, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: want a directory")
	}
	var st syscall.Stat_t
	if err := syscall.Stat(args[0], &st); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	pids, _, err := proc.ListOfUser(os.Getuid(), func(pid int) bool { return pid == os.Getpid() })
	if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	c := quota.CountTree(args[0], maxHomeFiles)
	if c.Hidden {
		return errors.New("usage: not everything can be counted")
	}
	_, err = fmt.Fprint(stdout, c.Bytes+proc.RemovedBytes(pids, st.Dev))
	return err
}

// printWritten prints as JSON the files that this process's user has written to a directory since a time. The time is
// in nanoseconds since 1970. written stops counting after the given number of files.
func printWritten(args []string, stdout io.Writer) error {
	if os.Getuid() == 0 || len(args) != 3 {
		return errors.New("written: want a directory, a time and a number, and not as root")
	}
	since, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("written: %w", err)
	}
	enough, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return fmt.Errorf("written: %w", err)
	}
	return json.NewEncoder(stdout).Encode(quota.CountWritten(args[0], time.Unix(0, since), enough))
}

// maxHomeFiles bounds the files that usage counts.
const maxHomeFiles = 100_000

// shareFolder lets this process's group read a directory and everything in it. It ignores the modes that a package gave
// its files, and skips links.
func shareFolder(args []string) error {
	if os.Getuid() == 0 || len(args) != 1 {
		return errors.New("share: want a directory, and not as root")
	}
	// The package may hold links. A Root does not follow them out.
	root, err := os.OpenRoot(args[0])
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".": // this folder belongs to sandboxd
			return nil
		case d.IsDir():
			return root.Chmod(path, 0o770) // early enough: WalkDir calls this before it reads the directory
		case d.Type().IsRegular():
			info, err := d.Info()
			if err != nil || info.Mode().Perm()&0o040 != 0 { // an earlier installation's lock file belongs to sandboxd
				return err
			}
			return root.Chmod(path, info.Mode().Perm()|0o040)
		}
		return nil
	})
}

// wipeFolder empties the directory args[1] below args[0] as this process's user, including directories that the user
// has made unreadable. It does not follow links out of args[0].
func wipeFolder(args []string) error {
	if os.Getuid() == 0 || len(args) != 2 {
		return errors.New("wipe: want a directory and one below it, and not as root")
	}
	if err := enterFolder(args[0], args[1]); err != nil {
		return err
	}
	// The folder may hold links that code made. A Root does not follow them out.
	root, err := os.OpenRoot(".")
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && path != "." {
			_ = root.Chmod(path, 0o700) // early enough: WalkDir calls this before it reads the directory
		}
		return nil
	})
	if err != nil {
		return err
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	errs := []error{err}
	for _, name := range names {
		errs = append(errs, root.RemoveAll(name))
	}
	return errors.Join(errs...)
}

// enterFolder makes a directory below another the working directory, after it has opened it for its owner. This user
// need not be able to list the other directory: no slot can list sandboxapi.HomesDir.
func enterFolder(above, name string) error {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	parent, err := unix.Open(above, flags, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: above, Err: err}
	}
	defer unix.Close(parent)
	dir, err := unix.Openat(parent, name, flags, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(dir)
	// It fails if the directory belongs to another user, which is harmless.
	_ = os.Chmod(fmt.Sprintf("/proc/self/fd/%d", dir), 0o700) //nolint:gosec // the path is a descriptor's
	return unix.Fchdir(dir)
}
