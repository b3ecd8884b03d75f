package proxyapi

import "time"

// The kinds of alarms.
const (
	AlarmCanary     = "canary"     // a value that only code that searches for credentials finds
	AlarmCredential = "credential" // the value of a credential, although code only gets its name
)

// Alarm reports a request, or a DNS query, with a secret that honest code never sends. The proxy sent at most a part,
// and ended the run.
type Alarm struct {
	At  time.Time `json:"at"`
	Run string    `json:"run,omitempty"`
	// Tenant is the same as in Registration.
	Tenant string `json:"tenant,omitempty"`
	// Kind is one of the constants above. Name is the credential's token name, if it has one.
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	// In is the part of the request, in the form of swap.CarriedValue. Method is empty for a DNS query.
	In     string `json:"in"`
	Method string `json:"method,omitempty"`
	// Host is the host that the request was for.
	Host string `json:"host,omitempty"`
}

// DescribeSecret describes the secret in words.
func (a Alarm) DescribeSecret() string {
	switch {
	case a.Kind == AlarmCanary:
		return "a canary"
	case a.Name != "":
		return "the value of " + a.Name
	}
	return "a secret"
}
