package jail

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

func (c *Container) slotDir(id slot.ID) string {
	return filepath.Join(c.cfg.Work, strconv.Itoa(int(id)))
}

// clearSlot removes the files of a slot for runs or for MCP servers.
func (c *Container) clearSlot(id slot.ID) error {
	if id.IsServer() {
		return clearServer(id)
	}
	return c.clearFiles(id)
}

// clearFiles removes a slot's private files. If the slot's user made files unreadable, clearFiles removes them as that
// user.
func (c *Container) clearFiles(id slot.ID) error {
	dir := c.slotDir(id)
	// The home is that of a private run.
	for _, folder := range []string{sandboxapi.HomeDir(id), sandboxapi.OutDir(id), filepath.Join(dir, "deno")} {
		if err := removeAs(id, folder); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// WipeDir empties the directory name below dir as the slot's user.
func WipeDir(id slot.ID, dir, name string) error {
	_, err := runAsSlot(context.Background(), id, "wipe", dir, name)
	return err
}

// prepareDir makes the slot's directory, with code that only the slot can read. Deno also gets a DENO_DIR it can write.
func (c *Container) prepareDir(spec InterpreterSpec) error {
	id := spec.Slot
	if err := c.clearFiles(id); err != nil {
		return err
	}
	dir, group := c.slotDir(id), BasePrivateGroup+int(id)
	if err := makeGroupDir(dir, group, 0o750); err != nil {
		return err
	}
	_, first, source := spec.codeFiles()
	if !spec.Python {
		if err := makeGroupDir(filepath.Join(dir, "deno"), group, 0o770|os.ModeSetgid); err != nil {
			return err
		}
		for name, data := range c.cache.listFiles() {
			if err := c.writeFile(id, "deno/"+name, data, 0o660); err != nil {
				return err
			}
		}
		if spec.Packages.Set != "" {
			err := os.Symlink(sandboxapi.PackageDir(spec.Packages.Set)+"/npm", filepath.Join(dir, "deno", "npm"))
			if err != nil {
				return err
			}
		}
	}
	makeDir := func(path string) error { return makeGroupDir(path, group, 0o750) }
	if err := linkFolders(dir, spec.Folders, makeDir); err != nil {
		return err
	}
	// Code's files belong to the slot's private group, in which sandboxd is, and not to the group of all slots.
	if err := makeGroupDir(sandboxapi.OutDir(id), group, 0o770|os.ModeSetgid); err != nil {
		return err
	}
	if writableFolder(spec) != "" {
		if err := makeGroupDir(writableFolder(spec), group, 0o770); err != nil {
			return err
		}
	}
	b := canaryBait(spec.Canary)
	for _, name := range b.listFolders() {
		if err := makeGroupDir(filepath.Join(dir, name), group, 0o750); err != nil {
			return err
		}
	}
	for name, text := range b.fileContents() {
		if err := c.writePrivate(id, name, []byte(text)); err != nil {
			return err
		}
	}
	return c.writePrivate(id, first, source)
}

// writableFolder returns the folder that a private run may write. It is empty for other runs.
func writableFolder(spec InterpreterSpec) string {
	//defence:private-files
	if spec.Private {
		return sandboxapi.HomeDir(spec.Slot)
	}
	return ""
}

// makeGroupDir makes a directory for a group. The directory stays closed until it belongs to the group.
func makeGroupDir(path string, group int, mode os.FileMode) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if err := os.Chown(path, -1, group); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// writePrivate writes a new file that only the slot can read.
func (c *Container) writePrivate(id slot.ID, name string, data []byte) error {
	return c.writeFile(id, name, data, 0o640)
}

// writeFile writes a new file in the slot's directory, for its private group.
func (c *Container) writeFile(id slot.ID, name string, data []byte, mode os.FileMode) error {
	// The mode stays 0600 until the group is set.
	f, err := os.OpenFile(filepath.Join(c.slotDir(id), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chown(-1, BasePrivateGroup+int(id)), f.Chmod(mode), f.Close())
}
