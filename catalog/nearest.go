package catalog

import (
	"slices"
	"strings"
)

// nearest is the known name that a user most likely meant, or nothing.
func nearest(name string, known []string) string {
	folded := fold(name)
	for from, to := range aliases() {
		if folded == from && slices.Contains(known, to) {
			return to
		}
	}
	best, distance := "", 3
	for _, k := range known {
		if d := edits(folded, fold(k)); d < distance && d < len(k)-1 {
			best, distance = k, d
		}
	}
	return best
}

func fold(s string) string {
	if len(s) > maxName {
		s = s[:maxName]
	}
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(s))
}

// edits is how many slips make a of b: a character more, less, another, or two swapped (optimal string alignment).
func edits(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// aliases are names that people take for one of ours, folded.
func aliases() map[string]string {
	return map[string]string{
		"hosts": "domains", "host": "domains", "hostnames": "domains", "urls": "domains", "url": "domains", "baseurl": "domains",
		"tokens": "credentials", "secrets": "credentials", "keys": "credentials", "apikey": "credentials",
		"docs": "reference", "documentation": "reference", "enabled": "active", "disabled": "active",
		"methods": "allowed_methods", "blockedmethods": "restricted_methods", "deniedmethods": "restricted_methods",
		"ca": "ca_file", "cafile": "ca_file", "private": "allow_private", "http": "allow_http", "insecure": "allow_http",
		"gzip": "compress", "compression": "compress", "allowcompression": "compress",
		"surfaces": "in", "where": "in", "path": "file", "secret": "value", "token": "value", "environment": "env",
	}
}
