package output

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"time"
)

// FileName is the name of the file with a run's output.
const FileName = "stdout.txt"

// RunFilesConfig configures RunFiles.
type RunFilesConfig struct {
	// Dir is the directory of runs. Code sees it read-only as Inside.
	Dir, Inside string
	// From is the number of bytes above which output is kept. Zero keeps all output.
	From int64
	// Runs and Bytes bound the kept output of older runs. Zero means 100 runs and 64 MiB.
	Runs  int
	Bytes int64
}

// RunFiles stores the output of runs in files.
type RunFiles struct {
	cfg  RunFilesConfig
	root *os.Root
}

// NewRunFiles opens the directory of runs.
func NewRunFiles(cfg RunFilesConfig) (*RunFiles, error) {
	cfg.Runs = cmp.Or(cfg.Runs, 100)
	cfg.Bytes = cmp.Or(cfg.Bytes, 64<<20)
	root, err := os.OpenRoot(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of runs: %w", err)
	}
	k := &RunFiles{cfg: cfg, root: root}
	return k, k.trimOldest()
}

// Close closes the directory.
func (k *RunFiles) Close() error { return k.root.Close() }

// NewFile returns the file of a run. It is created after more than From bytes have been written.
func (k *RunFiles) NewFile(run string) *OutputFile { return &OutputFile{keep: k, run: run} }

// OutputFile is the kept output of one run. A nil File keeps no output. Close returns its first error. An error never
// stops the run.
type OutputFile struct {
	keep *RunFiles
	run  string
	head []byte
	f    *os.File
	err  error
}

// Write appends output.
func (f *OutputFile) Write(p []byte) {
	if f == nil || f.err != nil {
		return
	}
	if f.f == nil {
		f.head = append(f.head, p...)
		if int64(len(f.head)) <= f.keep.cfg.From {
			return
		}
		if f.err = f.openOnce(); f.err != nil {
			return
		}
		// The file begins with the output that was held back until now.
		p, f.head = f.head, nil
	}
	_, f.err = f.f.Write(p)
}

func (f *OutputFile) openOnce() error {
	root := f.keep.root
	if err := root.Mkdir(f.run, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	// O_EXCL: a run with a used id must not overwrite earlier output.
	out, err := root.OpenFile(path.Join(f.run, FileName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		_ = root.Remove(f.run) // removes only an empty folder: the disk is full, and trim does not see it
	}
	f.f = out
	return err
}

// Close closes the file and returns its path as code sees it. The path is empty if the output was too small to keep or
// could not be written.
func (f *OutputFile) Close() (string, error) {
	if f == nil {
		return "", nil
	}
	if f.f == nil {
		return "", f.err
	}
	err := errors.Join(f.err, f.f.Close())
	if err != nil { // an incomplete file would take the space of later ones
		_ = f.keep.root.RemoveAll(f.run)
	}
	if err = errors.Join(err, f.keep.trimOldest()); err != nil {
		return "", fmt.Errorf("keeping the output of %s: %w", f.run, err)
	}
	return path.Join(f.keep.cfg.Inside, f.run, FileName), nil
}

// trimOldest removes the oldest runs until the bounds hold. It always keeps the newest.
func (k *RunFiles) trimOldest() error {
	dir, err := k.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	type kept struct {
		name string
		at   time.Time
		size int64
	}
	var runs []kept
	for _, e := range entries {
		info, err := k.root.Lstat(path.Join(e.Name(), FileName))
		if err != nil {
			continue // not the output of a run, or not created yet
		}
		runs = append(runs, kept{e.Name(), info.ModTime(), info.Size()})
	}
	slices.SortFunc(runs, func(a, b kept) int { return b.at.Compare(a.at) })
	var errs []error
	var total int64
	for i, r := range runs {
		total += r.size
		// The newest run stays even if it alone exceeds the bounds.
		if i > 0 && (i >= k.cfg.Runs || total > k.cfg.Bytes) {
			errs = append(errs, k.root.RemoveAll(r.name))
		}
	}
	return errors.Join(errs...)
}
