package attack

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/sigv4"
)

// signer is the API whose requests are signed: as S3 in one region, and with an HMAC.
const (
	signerID     = "AKIDOFTHEATTACK"
	signerRegion = "eu-central-1"
)

// The keys are canaries, of this process: no output may show one.
var signerKey, macKey = canary.New("SIGNED_AWS"), canary.New("SIGNED_MAC")

// withSigned adds that API. It is reached like the one of httpbin.
func withSigned(apis []world.API) []world.API {
	config := map[string]any{
		"description": "requests are signed", "domains": []string{upstream.Signed},
		"credentials": map[string]any{
			"SIGNED_AWS": map[string]any{"aws": map[string]any{"access_key_id": signerID, "secret_access_key": signerKey.Value(),
				"region": signerRegion, "services": []string{"s3"}}},
			"SIGNED_TABLE": map[string]any{"aws": map[string]any{"access_key_id": signerID, "secret_access_key": signerKey.Value(),
				"region": signerRegion, "services": []string{"dynamodb"}}},
			"SIGNED_MAC": map[string]any{"hmac": map[string]any{"key": macKey.Value(), "message": "{timestamp}{method}{path}{body}",
				"headers": map[string]string{"X-Sign": "{signature:hex}", "X-Time": "{timestamp}"}}},
		},
	}
	for _, a := range apis {
		if a.Name == "httpbin" {
			config["allow_private"], config["ca_file"] = a.Config["allow_private"], a.Config["ca_file"]
		}
	}
	return append(apis, world.API{Name: "signed", Config: config})
}

// leaked is where one of the keys is, or nothing.
func (e *Evidence) leaked() string {
	for _, c := range []*canary.Canary{signerKey, macKey} {
		for _, text := range []string{e.Result.JSON, e.Result.Out, e.World.Logs()} {
			if strings.Contains(text, c.Value()) {
				return "the key of " + c.Name + " is shown"
			}
		}
	}
	return ""
}

// signed: what arrived is one request that is signed for this host, region and service, now, and for what it is; nothing
// of an earlier signature is left.
func signed() Judge {
	return func(e *Evidence) (string, bool) {
		if text := e.leaked(); text != "" {
			return text, false
		}
		if len(e.Arrived) != 1 {
			return fmt.Sprintf("%d arrived: %s", len(e.Arrived), e.brief()), false
		}
		seen := e.Arrived[0]
		got := seen.Header.Values("Authorization")
		at, err := time.Parse("20060102T150405Z", seen.Header.Get("X-Amz-Date"))
		if err != nil || time.Since(at).Abs() > 5*time.Minute || len(got) != 1 || seen.Header.Get("X-Amz-Security-Token") != "" {
			return fmt.Sprintf("at %q, %d signatures", seen.Header.Get("X-Amz-Date"), len(got)), false
		}
		payload := seen.Header.Get(sigv4.PayloadHeader)
		if sum := sha256.Sum256(seen.Body); payload != sigv4.Unsigned && payload != sigv4.UnsignedTrailer && payload != hex.EncodeToString(sum[:]) {
			return "the hash of another body", false
		}
		again, err := http.NewRequest(seen.Method, "https://"+seen.Host+seen.Target, http.NoBody)
		if err != nil {
			return err.Error(), false
		}
		again.Header = seen.Header.Clone()
		keys := sigv4.Keys{ID: signerID, Secret: signerKey.Value()}
		if err := sigv4.SignRequest(again, sigv4.Scope{Service: "s3", Region: signerRegion}, keys, payload, at); err != nil {
			return err.Error(), false
		}
		if want := again.Header.Get("Authorization"); want != got[0] {
			return "signed otherwise: " + clip(got[0], 100), false
		}
		return "signed for " + signerRegion + "/s3", true
	}
}

// signatureHidden: what arrived is signed, and nothing that code gets shows the signature in any form.
func signatureHidden(e *Evidence) (string, bool) {
	if text := e.leaked(); text != "" {
		return text, false
	}
	if len(e.Arrived) != 1 {
		return fmt.Sprintf("%d arrived: %s", len(e.Arrived), e.brief()), false
	}
	h := e.Arrived[0].Header
	signature, name := h.Get("X-Sign"), "SIGNED_MAC"
	if signature == "" {
		_, signature, _ = strings.Cut(h.Get("Authorization"), "Signature=")
		name = "SIGNED_AWS"
	}
	if len(signature) != hex.EncodedLen(sha256.Size) {
		return "not signed", false
	}
	if where := canary.Join(map[string]*canary.Canary{name: canary.With(name, signature)}).Find([]byte(e.Result.JSON)); where != "" {
		return "the signature is shown: " + where, false
	}
	return "shown as " + name, strings.Contains(e.Result.Out, name)
}

// unsigned: whatever arrived has no signature of ours.
func unsigned(e *Evidence) (string, bool) {
	if text := e.leaked(); text != "" {
		return text, false
	}
	if e.misfired() != "" || len(e.lines()) == 0 {
		return "not mounted: " + e.brief(), false
	}
	for _, seen := range e.Arrived {
		for name, values := range seen.Header {
			for _, v := range values {
				if strings.Contains(v, signerID) || name == "X-Sign" && len(v) == hex.EncodedLen(sha256.Size) {
					return "signed: " + name, false
				}
			}
		}
		if strings.Contains(seen.Target+string(seen.Body), signerID) {
			return "the key's id is in the request", false
		}
	}
	return fmt.Sprintf("%d arrived, none signed", len(e.Arrived)), true
}

// macked: what arrived has the HMAC of what it is, now.
func macked(e *Evidence) (string, bool) {
	if text := e.leaked(); text != "" {
		return text, false
	}
	if len(e.Arrived) != 1 {
		return fmt.Sprintf("%d arrived: %s", len(e.Arrived), e.brief()), false
	}
	seen := e.Arrived[0]
	path, _, _ := strings.Cut(seen.Target, "?")
	m := hmac.New(sha256.New, []byte(macKey.Value()))
	fmt.Fprint(m, seen.Header.Get("X-Time"), seen.Method, path, string(seen.Body))
	var unix int64
	if _, err := fmt.Sscan(seen.Header.Get("X-Time"), &unix); err != nil || time.Since(time.Unix(unix, 0)).Abs() > 5*time.Minute {
		return "at " + seen.Header.Get("X-Time"), false
	}
	if got := seen.Header.Values("X-Sign"); len(got) != 1 || got[0] != hex.EncodeToString(m.Sum(nil)) {
		return fmt.Sprintf("%d signatures, or of something else", len(got)), false
	}
	return "the HMAC of what arrived", true
}
