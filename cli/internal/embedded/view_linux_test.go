package embedded

import (
	"os"
	"testing"
)

// TestAbove: a directory above a needed path is found.
func TestAbove(t *testing.T) {
	needed := []string{"/home/me/project/.codeforge", "/srv/bin", "/mnt"}
	for dir, want := range map[string]bool{
		"/home": true, "/srv": true, "/mnt": true, "/dev/shm": false, "/opt": false, "/ho": false, "/srv/bin/x": false,
	} {
		if got := isAbove(dir, needed); got != want {
			t.Errorf("isAbove(%s) = %v, want %v", dir, got, want)
		}
	}
}

// TestHidesNothing: an empty directory is preferred to one that is not.
func TestHidesNothing(t *testing.T) {
	dir, err := findPlace(nil)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range unused {
		if list, err := os.ReadDir(other); err == nil && len(list) == 0 && len(entries) > 0 && isUsable(other, nil) {
			t.Errorf("%s was chosen and is not empty, %s is", dir, other)
		}
	}
}

// TestPlace: the directory exists and holds nothing that is needed.
func TestPlace(t *testing.T) {
	first, err := findPlace(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := findPlace([]string{first + "/something"})
	if err == nil && other == first {
		t.Errorf("%s was chosen although it is needed", first)
	}
}
