package reload

import (
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// addWatches adds apis/ and its folders to the watcher. The watcher drops removed folders.
func (r *Reloader) addWatches(w *fsnotify.Watcher) {
	if w == nil {
		return
	}
	_ = w.Add(r.conf.Dir)
	entries, err := os.ReadDir(r.conf.Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			_ = w.Add(filepath.Join(r.conf.Dir, e.Name()))
		}
	}
}
