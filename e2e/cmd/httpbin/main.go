// Command httpbin serves go-httpbin for proxy/internal/egress. It prints its port.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/mccutchen/go-httpbin/v2/httpbin"
)

func main() {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test
		os.Exit(0)
	}()
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	_ = http.Serve(l, httpbin.New().Handler())
}
