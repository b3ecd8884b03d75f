package sandboxfleet

import (
	"encoding/json"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestListPlaces leaves out what cannot be reached: another family of addresses, and a missing port, address or pod.
func TestListPlaces(t *testing.T) {
	const runs, control, pod = `{"name":"runs","port":8443}`, `{"name":"control","port":8444}`, `{"addresses":["10.0.0.1"],"targetRef":{"uid":"a"}}`
	for name, c := range map[string]struct {
		family, ports, endpoint string
		alone, shared           int
	}{
		"whole":      {"IPv4", runs + "," + control, pod, 1, 1},
		"IPv6":       {"IPv6", runs + "," + control, pod, 0, 0},
		"no control": {"IPv4", runs, pod, 0, 1},
		"no runs":    {"IPv4", control, pod, 0, 0},
		"no number":  {"IPv4", `{"name":"runs"},` + control, pod, 0, 0},
		"no name":    {"IPv4", `{"port":8443},` + control, pod, 0, 0},
		"no address": {"IPv4", runs + "," + control, `{"addresses":[],"targetRef":{"uid":"a"}}`, 0, 0},
		"no pod":     {"IPv4", runs + "," + control, `{"addresses":["10.0.0.1"]}`, 0, 0},
		"no ID":      {"IPv4", runs + "," + control, `{"addresses":["10.0.0.1"],"targetRef":{}}`, 0, 0},
	} {
		var s endpointSlice
		testkit.Must(t, json.Unmarshal([]byte(`{"addressType":"`+c.family+`","ports":[`+c.ports+`],"endpoints":[`+c.endpoint+`]}`), &s))
		if alone, shared := s.listPlaces(false), s.listPlaces(true); len(alone) != c.alone || len(shared) != c.shared {
			t.Errorf("%s: %v, with a shared proxy %v", name, alone, shared)
		}
	}
}
