package controlapi

import "time"

// The kinds of alarms.
const (
	AlarmCanary     = "canary"     // a value that only code finds that searches for credentials
	AlarmCredential = "credential" // the value of a credential, for which code has a name only
)

// Alarm is a request, or a name that was asked for, that carried what no honest code sends. It did not leave, or not
// whole, and its run has ended.
type Alarm struct {
	At  time.Time `json:"at"`
	Run string    `json:"run,omitempty"`
	// Tenant is as in Registration.
	Tenant string `json:"tenant,omitempty"`
	// Kind is one of the constants above, Name the credential's token name, if it has one.
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	// In is the part of the request, as swap.Carried has it; Method is empty for a name that was asked for.
	In     string `json:"in"`
	Method string `json:"method,omitempty"`
	// Host is where it was to go.
	Host string `json:"host,omitempty"`
}

// What is what was carried, in words.
func (a Alarm) What() string {
	switch {
	case a.Kind == AlarmCanary:
		return "a canary"
	case a.Name != "":
		return "the value of " + a.Name
	}
	return "a secret"
}
