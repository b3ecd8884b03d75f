package mint

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

// grantDevice is the grant type of RFC 8628, section 3.4.
const grantDevice = "urn:ietf:params:oauth:grant-type:device_code"

// requestDeviceCode requests a code that the person enters (RFC 8628, section 3.1).
func (m *Minter) requestDeviceCode(ctx context.Context, s *credentialState, o *oauth2,
	l *login) (credentialapi.StartedLogin, error) {
	if l.client.DeviceURL == "" {
		return credentialapi.StartedLogin{}, errWay
	}
	form := url.Values{"client_id": {l.client.ID}}
	if len(l.client.Scopes) > 0 {
		form.Set("scope", o.joinScopes(l.client.Scopes))
	}
	if l.client.Resource != "" {
		form.Set("resource", l.client.Resource)
	}
	user, password := l.client.basicLogin()
	d, err := m.newRequester(s).fetchDeviceCode(ctx, l.client.DeviceURL, form, user, password)
	// RFC 8628, section 3.1, requires client authentication, but Google's documentation does not mention it. So the secret
	// is sent only if the server asks for it.
	if err != nil && asError("", err).Detail == "invalid_client" && !l.client.Basic && l.client.Secret != "" {
		form.Set("client_secret", l.client.Secret)
		d, err = m.newRequester(s).fetchDeviceCode(ctx, l.client.DeviceURL, form, "", "")
	}
	if err != nil {
		return credentialapi.StartedLogin{}, err
	}
	d.URL = cmp.Or(d.URL, d.Google)
	// The operator's terminal shows the page and the code, so both must be plain text.
	if parseHTTPS(d.URL) == nil || !isPlainText(d.URL, 2048) || !isPlainText(d.User, 64) ||
		!isPlainText(d.Device, 4096) {
		return credentialapi.StartedLogin{}, newUnavailable(detailNotJSON)
	}
	l.device, l.interval = d.Device, pollInterval
	if d.Interval >= 1 && d.Interval <= 60 {
		l.interval = time.Duration(d.Interval * float64(time.Second))
	}
	l.next, l.deadline = m.wallTime().Add(l.interval), m.wallTime().Add(loginTime)
	if d.Life >= 1 && d.Life < loginTime.Seconds() {
		// The server may end the code earlier than loginTime, but never later.
		l.deadline = m.wallTime().Add(time.Duration(d.Life * float64(time.Second)))
	}
	return credentialapi.StartedLogin{ID: l.id, URL: d.URL, Code: d.User, Interval: int(l.interval.Seconds())}, nil
}

// deviceAnswer is the answer of a device authorization endpoint.
type deviceAnswer struct {
	Device   string  `json:"device_code"`
	User     string  `json:"user_code"`
	URL      string  `json:"verification_uri"`
	Google   string  `json:"verification_url"`
	Life     float64 `json:"expires_in"`
	Interval float64 `json:"interval"`
	Error    string  `json:"error"`
}

// fetchDeviceCode sends a request to a device authorization endpoint.
func (r *requester) fetchDeviceCode(
	ctx context.Context, to string, form url.Values, user, password string,
) (d deviceAnswer, err error) {
	a, err := r.postForm(ctx, to, form, user, password)
	if err != nil {
		return d, err
	}
	switch err := decodeObject(a.Body, &d); {
	case err != nil:
		return d, err
	case d.Error != "":
		return d, newUnavailable(filterCode(d.Error))
	case a.Status != 200:
		return d, newUnavailable(detailStatus)
	}
	return d, nil
}

// isPlainText reports whether a text may be shown on a terminal and has at most most bytes.
func isPlainText(s string, most int) bool {
	return s != "" && len(s) <= most && safetext.IsPlain(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' })
}

// PollLogin asks the server whether the person has entered the code of a login by device.
func (m *Minter) PollLogin(ctx context.Context, id string) (credentialapi.LoginProgress, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	l := m.findLogin(id)
	if l == nil {
		return credentialapi.LoginProgress{}, errNoLogin
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := m.wallTime()
	// Ask no further: the server has forgotten the code.
	if now.After(l.deadline) {
		m.endLogin(id)
		return credentialapi.LoginProgress{}, toOperatorError(newUnavailable("expired_token"))
	}
	if wait := l.next.Sub(now); wait > 0 && wait <= time.Minute {
		return credentialapi.LoginProgress{Interval: int(wait.Seconds()) + 1}, nil
	}
	// Another call may have ended the login while this one waited for the lock.
	if m.findLogin(id) != l {
		return credentialapi.LoginProgress{}, errNoLogin
	}
	err := m.exchangeCode(ctx, l, url.Values{"grant_type": {grantDevice}, "device_code": {l.device}})
	detail := ""
	if r, ok := err.(*rpc.Error); ok { //nolint:errorlint // exchange returns no other
		detail = r.Code
	}
	switch detail {
	// A short outage does not end the login. RFC 8628, section 3.5: slow down.
	case "slow_down", detailUnreachable, detailStatus:
		l.interval += slower
		fallthrough
	case "authorization_pending":
		l.next = m.wallTime().Add(l.interval)
		return credentialapi.LoginProgress{Interval: int(l.interval.Seconds())}, nil
	}
	m.endLogin(id)
	if err != nil {
		return credentialapi.LoginProgress{}, err
	}
	return credentialapi.LoginProgress{Done: true}, nil
}
