package jail

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
)

// shareDirs opens /tmp and /skills to the slots' group.
func (e *Embedded) shareDirs() error {
	if err := os.Chmod(e.cfg.Tmp, 0o777|os.ModeSticky); err != nil {
		return err
	}
	if !e.ownUIDs || e.cfg.SkillsReadonly {
		return nil
	}
	if err := os.Chown(e.cfg.Skills, -1, slot.GroupID); err != nil {
		return err
	}
	return os.Chmod(e.cfg.Skills, 0o775|os.ModeSetgid)
}

// codeDir makes a fresh directory for one interpreter, with the files that run before the code.
func (e *Embedded) codeDir(spec InterpreterSpec) (string, error) {
	e.mu.Lock()
	e.seq++
	dir := filepath.Join(e.cfg.Work, fmt.Sprintf("slot%d-%d", spec.Slot, e.seq))
	e.mu.Unlock()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	folders := linkFolders(dir, spec.Folders, func(path string) error { return os.Mkdir(path, 0o755) })
	if err := errors.Join(fillCodeDir(dir, spec), folders, e.makeOutFolder(spec.Slot, dir)); err != nil {
		return "", errors.Join(err, e.removeFolders(dir)) // on a full disk, remove the written part
	}
	return dir, nil
}

// outFolder returns the folder that the interpreter with a code directory sees as OutDir.
func (e *Embedded) outFolder(codeDir string) string {
	return filepath.Join(e.cfg.Out, filepath.Base(codeDir))
}

func (e *Embedded) makeOutFolder(id slot.ID, codeDir string) error {
	out := e.outFolder(codeDir)
	err := os.Mkdir(out, 0o700)
	if err == nil && e.ownUIDs {
		err = os.Chown(out, id.UID(), slot.GroupID)
	}
	return err
}

// removeFolders removes a code directory and the folder of outFolder.
func (e *Embedded) removeFolders(codeDir string) error {
	out := e.outFolder(codeDir)
	err := os.RemoveAll(out)
	if errors.Is(err, os.ErrPermission) { // code has closed folders, and the count opens them again
		_ = os.Chmod(out, 0o700)
		quota.CountTree(out, math.MaxInt64)
		err = os.RemoveAll(out)
	}
	return errors.Join(err, os.RemoveAll(codeDir))
}

func fillCodeDir(dir string, spec InterpreterSpec) error {
	b := canaryBait(spec.Canary)
	for _, name := range b.listFolders() {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	for name, text := range b.fileContents() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	_, first, source := spec.codeFiles()
	return os.WriteFile(filepath.Join(dir, first), source, 0o644)
}
