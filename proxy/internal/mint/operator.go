package mint

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
)

// ForgetLogin forgets the stored value and the value in memory of a credential. The name may belong to a credential
// that no API has any more.
func (m *Minter) ForgetLogin(name string) error {
	// The name becomes a file name.
	if !catalog.ValidTokenName(name) {
		return errNoCredential
	}
	// First, so that no browser completes a login after a failed removal.
	m.mu.Lock()
	maps.DeleteFunc(m.logins, func(_ string, l *login) bool { return l.name == name })
	m.mu.Unlock()
	st, err := m.openStoreOnce(true, 0)
	if err != nil {
		return errStorage
	}
	// No renewal may store a new token between the removal and the new serial.
	m.storing.Lock()
	defer m.storing.Unlock()
	// Remove the file first: if that fails, the credential stays as it is.
	if err := st.removeState(name); err != nil {
		return errStorage
	}
	var replaced []renewedvalues.Value
	m.mu.Lock()
	if s := cmp.Or(m.states[name], m.leaving[name]); s != nil {
		s.serial++
		replaced = s.listReplaced(s.kept, m.wallTime())
		s.kept, s.unstored, s.renewAt = storedToken{}, nil, time.Time{}
		s.failed, s.attempts, s.nextTry = nil, 0, time.Time{}
	}
	m.mu.Unlock()
	// Without mu, because it may compile for long. The server may still accept these values, so responses are still
	// searched for them.
	_ = m.conf.Values.AddValues(replaced...)
	m.conf.Login(name, true)
	return nil
}

// SupplyValue takes over the value of a "command" from the feeder that ran the command.
func (m *Minter) SupplyValue(name string, v credentialapi.SuppliedValue) error {
	m.mu.Lock()
	s, conf := m.states[name], catalog.Credential{}
	if s != nil {
		conf = s.conf
	}
	c, isCommand := conf.Mint.(*catalog.Command)
	isRepeated := isCommand && v.ExpiresAt != nil && s.kept.isUntil(v.Value, *v.ExpiresAt)
	if isRepeated {
		s.renewAt = *v.ExpiresAt // asking again before the end would bring the same value
	}
	m.mu.Unlock()
	switch {
	case !isCommand:
		return errNotCommand
	case isRepeated:
		return nil
	}
	now := m.wallTime()
	g := grant{Access: v.Value, Life: c.TTL.Duration(), Stale: staleSource}
	if v.ExpiresAt != nil {
		// The program knows the exact end, so the value is not used beyond it.
		g.Life, g.Stale = v.ExpiresAt.Sub(now), 0
	}
	next, err := m.acceptToken(name, g, storedToken{}, conf.MintDigest(), now)
	if err != nil {
		return errSupply
	}
	m.mu.Lock()
	// An older value under way must not replace this one.
	s.serial++
	serial := s.serial
	m.mu.Unlock()
	if err := m.storeAndPublish(s, serial, next, nil); err != nil {
		return toOperatorError(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.failed, s.attempts, s.nextTry = nil, 0, time.Time{}
	return nil
}

// ListCredentials describes the catalog's credentials that the proxy obtains.
func (m *Minter) ListCredentials() []credentialapi.Credential {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []credentialapi.Credential{}
	for _, s := range m.states {
		out = append(out, s.describeState(m.wallTime()))
	}
	slices.SortFunc(out, func(a, b credentialapi.Credential) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// describeState returns all properties of a credential except its value.
func (s *credentialState) describeState(now time.Time) credentialapi.Credential {
	o := s.conf.LoginClient()
	_, isCommand := s.conf.Mint.(*catalog.Command)
	c := credentialapi.Credential{Name: s.name, API: s.api.Name, Kind: s.conf.Mint.Kind(), Logins: o != nil}
	if o != nil {
		c.Browser, c.Device = o.AuthURL != "" || o.Resource != "", o.DeviceURL != "" || o.Resource != ""
		c.RedirectHost, c.RedirectPort = o.RedirectHost, o.RedirectPort
	}
	if s.isUsable(now) {
		c.ValidUntil = s.kept.Expires
	}
	if s.failed != nil {
		c.LastError = s.failed.Detail
	}
	// A usable value comes before a failure: requests still succeed with it while its renewal fails.
	switch {
	case !isObtained(s.conf.Mint), s.isUsable(now):
		c.State = credentialapi.StateReady
	case o != nil && (s.kept.Refresh == "" || s.failed != nil && s.failed.Code == policy.CodeLoginNeeded):
		c.State = credentialapi.StateLogin
	case isCommand:
		c.State = credentialapi.StateSupply
	case s.failed != nil:
		c.State = credentialapi.StateFailed
	case s.kept.Refresh != "":
		c.State = credentialapi.StateReady
	default:
		c.State = credentialapi.StateUnused
	}
	// A value that expires is due before it expires.
	if due := s.renewAt; isCommand && !due.IsZero() {
		c.DueAt = &due
	}
	return c
}
