package catalog

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
)

// warnReadable warns of credentials that other users of the machine can read.
func (v *configValidator) warnReadable(c configFile) {
	inline := len(c.inlineSecrets()) > 0
	info, err := v.root.Stat(v.API + "/config.json")
	// Windows has no such modes, and a config.json without secrets may be readable.
	if runtime.GOOS == "windows" || !inline || err != nil {
		return
	}
	if mode := info.Mode().Perm(); mode&0o004 != 0 {
		v.AddWarning("", fmt.Sprintf("credentials that every user of this machine can read (mode %04o)", mode),
			"mode 0600 (chmod 600)")
	}
}

func (c configFile) inlineSecrets() []string {
	var out []string
	add := func(s secretSource) {
		if s.value != nil {
			out = append(out, *s.value)
		}
	}
	for _, raw := range c.credentials {
		add(raw.secretSource)
		for _, field := range slices.Sorted(maps.Keys(raw.mint.secretSources())) {
			// access_key_id is public, and often a common word of messages.
			if field != "access_key_id" {
				add(raw.mint.secret[field])
			}
		}
	}
	if c.clientCert != nil {
		add(c.clientCert.key)
	}
	return out
}

// maskProblems replaces the file's credentials in its problems. It is the last step, so that no message quotes a
// credential.
func (v *configValidator) maskProblems(c configFile) {
	for _, secret := range c.inlineSecrets() {
		// Short texts occur in messages by chance.
		if len(secret) < minValue {
			continue
		}
		for i := range v.Problems {
			p := &v.Problems[i]
			// Such a field contains only valid token names.
			if !strings.HasPrefix(p.Field, "credentials.") {
				p.Field = strings.ReplaceAll(p.Field, secret, "[secret]")
			}
			p.Found = strings.ReplaceAll(p.Found, secret, "[secret]")
			p.Want = strings.ReplaceAll(p.Want, secret, "[secret]")
		}
	}
}
