package bucket

import (
	"strings"
	"testing"
)

// TestAttackUserinfo: an error does not show a key that somebody wrote into an address.
func TestAttackUserinfo(t *testing.T) {
	const secret = "made-up-secret-of-a-test"
	for _, c := range []struct{ address, server string }{
		{"s3://AKIDMADEUP:" + secret + "@runs/team", "http://127.0.0.1:9"}, {"s3://runs?secret=" + secret, "http://127.0.0.1:9"},
		{"https://AKIDMADEUP:" + secret + "@s3.example/runs", "http://127.0.0.1:9"}, {"s3://runs", "https://AKIDMADEUP:" + secret + "@s3.example"},
		{"s3://runs", "https://AKIDMADEUP:" + secret + "@s3.example:port"},
	} {
		env := map[string]string{"AWS_ENDPOINT_URL_S3": c.server, "AWS_ACCESS_KEY_ID": "AKIDMADEUP", "AWS_SECRET_ACCESS_KEY": secret}
		_, err := Open(c.address, func(k string) string { return env[k] })
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s at %s: %v", c.address, c.server, err)
		}
	}
}
