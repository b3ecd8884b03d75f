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

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
)

// reap kills every other process of this process's user.
func reap() error {
	if os.Getuid() == 0 {
		return errors.New("reap: not as root")
	}
	if err := syscall.Kill(-1, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("reap: %w", err)
	}
	return nil
}

// unnamed prints how many bytes this process's user holds in files of a file system that are open but have been
// removed.
func unnamed(args []string, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("unnamed: want the number of a device")
	}
	device, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return fmt.Errorf("unnamed: %w", err)
	}
	pids, _, err := proc.OfUser(os.Getuid(), func(pid int) bool { return pid == os.Getpid() })
	if err != nil {
		return fmt.Errorf("unnamed: %w", err)
	}
	_, err = fmt.Fprint(stdout, proc.Unnamed(pids, device))
	return err
}

// usage prints how many bytes a directory of this process's user holds, with the files of its file system that the user
// has open but that have been removed.
func usage(args []string, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: want a directory")
	}
	var st syscall.Stat_t
	if err := syscall.Stat(args[0], &st); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	pids, _, err := proc.OfUser(os.Getuid(), func(pid int) bool { return pid == os.Getpid() })
	if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	c := quota.Tree(args[0], maxHomeFiles)
	if c.Hidden {
		return errors.New("usage: not everything can be counted")
	}
	_, err = fmt.Fprint(stdout, c.Bytes+proc.Unnamed(pids, st.Dev))
	return err
}

// written prints as JSON what this process's user has written to a directory since a time, in nanoseconds since 1970,
// counting no more files than needed.
func written(args []string, stdout io.Writer) error {
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
	return json.NewEncoder(stdout).Encode(quota.Written(args[0], time.Unix(0, since), enough))
}

// maxHomeFiles is how many files of a home are counted.
const maxHomeFiles = 100_000

// share lets this process's group read a directory with all that is in it, whatever modes a package gave its files.
// Links are left alone.
func share(args []string) error {
	if os.Getuid() == 0 || len(args) != 1 {
		return errors.New("share: want a directory, and not as root")
	}
	root, err := os.OpenRoot(args[0])
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".": // sandboxd's own
			return nil
		case d.IsDir():
			return root.Chmod(path, 0o770) // in time: WalkDir calls this before it reads the directory
		case d.Type().IsRegular():
			info, err := d.Info()
			if err != nil || info.Mode().Perm()&0o040 != 0 { // the lock file of an earlier installation is sandboxd's
				return err
			}
			return root.Chmod(path, info.Mode().Perm()|0o040)
		}
		return nil
	})
}

// wipe empties the directory args[1] below args[0] as this process's user, including directories that the user has made
// unreadable. Links are not followed out of args[0].
func wipe(args []string) error {
	if os.Getuid() == 0 || len(args) != 2 {
		return errors.New("wipe: want a directory and one below it, and not as root")
	}
	above, err := os.OpenRoot(args[0])
	if err != nil {
		return err
	}
	defer above.Close()
	_ = above.Chmod(args[1], 0o700) // fails when it is another user's, which is not a reason to stop
	root, err := above.OpenRoot(args[1])
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && path != "." {
			_ = root.Chmod(path, 0o700) // in time: WalkDir calls this before it reads the directory
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
