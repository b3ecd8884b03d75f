package control

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/podslots"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// shared is a control API for pods that share the proxy.
func shared(t *testing.T) *Control {
	c, _ := newControl(t)
	c.conf.Pods = podslots.New(podslots.Config{Busy: c.conf.Leases.IsBusy, Forget: c.conf.Leases.ResetSlot})
	return c
}

// Pods that share the proxy each have a slot of their own, found by address; all of them call it 0.
// Promise: shared-proxy
func TestPods(t *testing.T) {
	control := shared(t)
	c, ctx := serve(t, control), t.Context()
	one, two := c.ForPod("10.1.0.1"), c.ForPod("10.1.0.2")
	reg := func(run string, generation uint64) proxyapi.Registration {
		return proxyapi.Registration{Run: run, Generation: generation, Deadline: time.Now().Add(time.Minute)}
	}
	testkit.Must(t, one.RegisterRun(ctx, 0, reg("one", 200)))
	testkit.Must(t, two.RegisterRun(ctx, 0, reg("two", 100))) // each pod has its own generations
	for address, want := range map[string]string{"10.1.0.1": "one", "10.1.0.2": "two"} {
		id, ok := control.conf.Pods.FindSlot(netip.MustParseAddr(address))
		if l, err := control.conf.Leases.AttachConn(id, io.NopCloser(nil)); !ok || err != nil || l.Run != want {
			t.Errorf("a connection from %s: %v %v", address, l, err)
		}
	}
	// A pod whose address an earlier one had begins its generations with the time: the earlier pod's run ends, and cannot
	// return.
	testkit.Must(t, one.RegisterRun(ctx, 0, reg("reused", 300)))
	if err := one.RegisterRun(ctx, 0, reg("late", 201)); !errors.Is(err, proxyapi.ErrFenced) {
		t.Errorf("an earlier pod's run: %v", err)
	}
	if _, err := one.DrainExchanges(ctx, 0, 200, proxyapi.Cause{}); !errors.Is(err, proxyapi.ErrFenced) {
		t.Errorf("an earlier pod's receipt: %v", err)
	}
	if _, err := c.ForPod("10.1.0.3").UnregisterRun(ctx, 0, 1, proxyapi.Summary{}); !errors.Is(err, proxyapi.ErrFenced) {
		t.Errorf("a pod that was not registered: %v", err)
	}
	if r, err := two.UnregisterRun(ctx, 0, 100, proxyapi.Summary{}); err != nil || r.Run != "two" {
		t.Errorf("the end of the other pod's run: %+v, %v", r, err)
	}
}

// A request names its pod, once and as an address, if and only if pods share the proxy.
// Promise: shared-proxy
func TestWhichPod(t *testing.T) {
	own, _ := newControl(t)
	body := `{"run":"r","generation":5,"deadline":"` + time.Now().Add(time.Minute).Format(time.RFC3339) + `"}`
	for _, row := range []struct {
		control *Control
		path    string
		want    int
	}{
		{shared(t), "/v1/slots/0?pod=10.1.0.1", http.StatusNoContent},
		{shared(t), "/v1/slots/0", http.StatusBadRequest},
		{shared(t), "/v1/slots/1?pod=10.1.0.1", http.StatusBadRequest},
		{shared(t), "/v1/slots/0?pod=10.1.0.1&pod=10.1.0.2", http.StatusBadRequest},
		{shared(t), "/v1/slots/0?pod=", http.StatusBadRequest},
		{shared(t), "/v1/slots/0?pod=pod", http.StatusBadRequest},
		{shared(t), "/v1/slots/0?pod=fd00::1", http.StatusBadRequest},
		{own, "/v1/slots/0?pod=10.1.0.1", http.StatusBadRequest},
		{own, "/v1/slots/0", http.StatusNoContent},
	} {
		w := httptest.NewRecorder()
		row.control.ServeHTTP(w, httptest.NewRequest(http.MethodPut, row.path, strings.NewReader(body)))
		if w.Code != row.want {
			t.Errorf("%s: %d %s, want %d", row.path, w.Code, w.Body, row.want)
		}
	}
}
