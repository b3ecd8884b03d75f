package egress

import (
	"net/http"

	"github.com/elazarl/goproxy"
)

// newProxy makes the handler that sends an exchange's request through roundTrip and copies the response.
func newProxy() http.Handler {
	p := goproxy.NewProxyHttpServer()
	p.Logger = silentLogger{}
	p.KeepAcceptEncoding = true
	p.KeepHeader = true // outgoing removes more headers than goproxy would
	p.Tr = nil          // each request sets its round tripper below
	p.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		ctx.RoundTripper = goproxy.RoundTripperFunc(roundTrip)
		return r, nil
	})
	return p
}

// silentLogger keeps goproxy from logging: its messages quote bytes from upstream.
type silentLogger struct{}

func (silentLogger) Printf(string, ...any) {}

// roundTrip sends the request for goproxy, through the pool and the scrubber. It never returns an error, because
// goproxy would show the error's text to the client.
func roundTrip(out *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
	x := exchangeOf(out.Context())
	resp, err := x.sendRequest(out)
	if err != nil {
		return x.refusal(err), nil
	}
	return x.scrubResponse(resp), nil
}
