package sandboxfleet

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Slices lists and watches the EndpointSlices of a service. CodeForge needs no other part of the API server, and
// client-go would more than double the size of mcp-server.
type Slices struct {
	// Namespace and Service name the service of the sandboxes.
	Namespace, Service string
	// Server is the URL of the API server. Account is the folder of the service account, with token and ca.crt. The token
	// is read for each request, because Kubernetes replaces it.
	Server, Account string
	// Shared means that the pods share a proxy.
	Shared bool
}

// InCluster returns the slices of a service, followed with the pod's account.
func InCluster(getenv func(string) string, namespace, service string) (*Slices, error) {
	host := getenv("KUBERNETES_SERVICE_HOST")
	port := cmp.Or(getenv("KUBERNETES_SERVICE_PORT_HTTPS"), getenv("KUBERNETES_SERVICE_PORT"))
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: run this in a pod")
	}
	return &Slices{
		Namespace: namespace, Service: service, Server: "https://" + net.JoinHostPort(host, port),
		Account: "/var/run/secrets/kubernetes.io/serviceaccount",
	}, nil
}

// Bounds of a watch. The API server ends a watch after watchTime, and the next one continues from there.
const (
	watchTime = 5 * time.Minute
	askTime   = 15 * time.Second
	maxList   = 64 << 20 // bytes of a list: 100 endpoints are about 40 KB
)

// Place is a pod as the slices describe it.
type Place struct {
	// ID is never reused for another pod.
	ID string
	// Runs and Control are addresses, host:port. If pods share a proxy, Control is unused: its port is 0.
	Runs, Control string
	// Ready means that the pod may get new leases.
	Ready bool
}

// endpointSlice is the needed part of an EndpointSlice.
type endpointSlice struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	AddressType string `json:"addressType"`
	Endpoints   []struct {
		Addresses  []string `json:"addresses"`
		Conditions struct {
			Ready       *bool `json:"ready"`
			Terminating *bool `json:"terminating"`
		} `json:"conditions"`
		TargetRef *struct {
			UID string `json:"uid"`
		} `json:"targetRef"`
	} `json:"endpoints"`
	Ports []struct {
		Name *string `json:"name"`
		Port *int    `json:"port"`
	} `json:"ports"`
}

// Names of the service's ports.
const (
	portRuns    = "runs"
	portControl = "control"
)

// listPlaces returns the pods of a slice. It omits endpoints without an address, a port or a pod. Pods that share a
// proxy have no control port.
func (s endpointSlice) listPlaces(shared bool) []Place {
	ports := map[string]int{}
	for _, p := range s.Ports {
		if p.Name != nil && p.Port != nil {
			ports[*p.Name] = *p.Port
		}
	}
	// Without these ports the pods cannot be reached.
	if s.AddressType != "IPv4" || ports[portRuns] == 0 || ports[portControl] == 0 && !shared {
		return nil
	}
	var out []Place
	for _, e := range s.Endpoints {
		if len(e.Addresses) == 0 || e.TargetRef == nil || e.TargetRef.UID == "" {
			continue
		}
		at := func(port int) string { return net.JoinHostPort(e.Addresses[0], fmt.Sprint(port)) }
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready
		// A pod that ends still serves its runs, but gets no new ones.
		leaves := e.Conditions.Terminating != nil && *e.Conditions.Terminating
		out = append(out, Place{
			ID: e.TargetRef.UID, Runs: at(ports[portRuns]), Control: at(ports[portControl]), Ready: ready && !leaves,
		})
	}
	return out
}

// Follow calls on with all pods, at first and after every change, until ctx ends or the API server does not answer. The
// error is never nil.
func (s *Slices) Follow(ctx context.Context, on func([]Place)) error {
	client, err := s.newClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	all := map[string]endpointSlice{}
	tell := func() {
		var list []Place
		for _, one := range all {
			list = append(list, one.listPlaces(s.Shared)...)
		}
		on(list)
	}
	// The list gives the version from which the watch misses no change.
	version, err := s.listSlices(ctx, client, all)
	if err != nil {
		return err
	}
	tell()
	for {
		if version, err = s.watchSlices(ctx, client, version, all, tell); err != nil {
			return err
		}
	}
}

// newClient returns an HTTP client that trusts only the cluster's authority.
func (s *Slices) newClient() (*http.Client, error) {
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(s.Account, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the cluster's authority has no certificate")
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
		ResponseHeaderTimeout: askTime, TLSHandshakeTimeout: askTime, ForceAttemptHTTP2: true,
		// Pings detect a dead connection to the API server.
		HTTP2: &http.HTTP2Config{SendPingTimeout: askTime, PingTimeout: askTime},
	}}, nil
}

// getSlices requests the service's slices.
func (s *Slices) getSlices(ctx context.Context, client *http.Client, more url.Values) (*http.Response, error) {
	more.Set("labelSelector", "kubernetes.io/service-name="+s.Service)
	at := s.Server + "/apis/discovery.k8s.io/v1/namespaces/" + url.PathEscape(s.Namespace) + "/endpointslices?" +
		more.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	// Kubernetes replaces the token before it expires, so each request reads the file again.
	token, err := os.ReadFile(filepath.Join(s.Account, "token"))
	if err != nil {
		return nil, fmt.Errorf("reading the service account's token: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the API server: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, fmt.Errorf("the API server answered %d: %.300q", resp.StatusCode, text)
	}
	return resp, nil
}

// listSlices reads all slices, and returns the version to watch from.
func (s *Slices) listSlices(ctx context.Context, client *http.Client, all map[string]endpointSlice) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	resp, err := s.getSlices(ctx, client, url.Values{})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []endpointSlice `json:"items"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxList)).Decode(&list); err != nil {
		return "", fmt.Errorf("reading the list of sandboxes: %w", err)
	}
	for _, one := range list.Items {
		all[one.Metadata.Name] = one
	}
	return list.Metadata.ResourceVersion, nil
}

// watchSlices follows changes after a version until the API server ends the watch. It returns the version to continue
// from.
func (s *Slices) watchSlices(
	ctx context.Context, client *http.Client, version string, all map[string]endpointSlice, tell func(),
) (string, error) {
	// A dead watch must end: without a bound, a pod that is gone would stay in the fleet.
	ctx, cancel := context.WithTimeout(ctx, watchTime+askTime)
	defer cancel()
	resp, err := s.getSlices(ctx, client, url.Values{
		"watch": {"1"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {fmt.Sprint(int(watchTime.Seconds()))},
	})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(resp.Body); ; {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return version, nil
		} else if err != nil {
			return "", fmt.Errorf("watching the sandboxes: %w", err)
		}
		var one endpointSlice
		if err := json.Unmarshal(e.Object, &one); err != nil {
			return "", fmt.Errorf("watching the sandboxes: %w", err)
		}
		switch e.Type {
		case "ADDED", "MODIFIED":
			all[one.Metadata.Name] = one
		case "DELETED":
			delete(all, one.Metadata.Name)
		case "BOOKMARK":
		default: // the version is too old: the caller lists again
			return "", fmt.Errorf("the API server ended the watch: %.300q", e.Object)
		}
		version = one.Metadata.ResourceVersion
		if e.Type != "BOOKMARK" {
			tell()
		}
	}
}
