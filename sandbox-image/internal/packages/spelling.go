package packages

import (
	"encoding/json"
	"os"
	"strings"
)

// addSpellings adds the short spellings of a set's packages to the lock file of a draft. So Deno resolves npm:NAME, and
// a range with the pinned version, to the pinned version, without asking a registry. The lock file that lockPath names
// stays as Deno wrote it.
func addSpellings(path, set string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var lock map[string]json.RawMessage
	var specifiers map[string]string
	if json.Unmarshal(data, &lock) != nil || json.Unmarshal(lock["specifiers"], &specifiers) != nil {
		return nil // Deno reports such a file
	}
	for pin := range strings.SplitSeq(set, " ") {
		if resolved, ok := specifiers[pin]; ok {
			for _, s := range listSpellings(pin) {
				specifiers[s] = resolved
			}
		}
	}
	if lock["specifiers"], err = json.Marshal(specifiers); err != nil {
		return err
	}
	if data, err = json.Marshal(lock); err != nil {
		return err
	}
	// A new file, because the copied one has no write bit.
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o444) //nolint:gosec // for all slots
}

// listSpellings lists the ranges that lead code to a pin, npm:NAME@VERSION.
func listSpellings(pin string) []string {
	at := strings.LastIndexByte(pin, '@')
	name, version := pin[:at], pin[at+1:]
	release, _, _ := strings.Cut(version, "-")
	major, rest, _ := strings.Cut(release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	out := []string{}
	for _, r := range []string{
		"*", "latest", major, major + "." + minor, "^" + major, "^" + major + "." + minor, "^" + version, "~" + version,
	} {
		out = append(out, name+"@"+r)
	}
	return out
}
