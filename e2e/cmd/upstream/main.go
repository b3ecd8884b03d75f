// Command upstream is the test upstream in a container: see package upstream. It reads its certificate authority from a
// directory (ca.pem, ca.key) that the test wrote.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/internal/testca"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	f := flag.NewFlagSet("upstream", flag.ContinueOnError)
	dir := f.String("ca", "/ca", "directory of ca.pem and ca.key, perhaps known.json")
	tls := f.String("tls", ":443", "addresses for HTTPS, comma separated")
	web := f.String("http", ":80", "addresses for HTTP, comma separated")
	packages := f.String("registry", "", "folder of npm packages to serve; none when empty")
	dns := f.String("dns", "", "addresses for DNS over UDP, comma separated; none when empty")
	control := f.String("control", ":9000", "address of the record's own HTTP API")
	private := f.String("private", upstream.Embedded.Private.String(), "address that DNS gives for the ordinary names")
	public := f.String("public", upstream.Embedded.Public.String(), "address that DNS gives for the names in no API")
	if err := f.Parse(args); err != nil {
		return err
	}
	ca, err := testca.Load(*dir)
	if err != nil {
		return err
	}
	var at upstream.Addresses
	if at.Private, err = netip.ParseAddr(*private); err != nil {
		return fmt.Errorf("-private: %w", err)
	}
	if at.Public, err = netip.ParseAddr(*public); err != nil {
		return fmt.Errorf("-public: %w", err)
	}
	known := map[string]string{}
	if data, err := os.ReadFile(filepath.Join(*dir, "known.json")); err == nil {
		if err := json.Unmarshal(data, &known); err != nil {
			return fmt.Errorf("known.json: %w", err)
		}
	}
	hosts, err := upstream.ReadHosts(filepath.Join(*dir, upstream.HostsDir))
	if err != nil {
		return err
	}
	s, err := upstream.Start(upstream.Config{
		CA: ca, TLS: list(*tls), HTTP: list(*web), DNS: list(*dns), Control: *control, Addresses: at, Known: known,
		Registry: *packages, Hosts: hosts,
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(stdout, "upstream: ready")
	<-ctx.Done()
	return s.Close()
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
