package mint

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // some APIs still want it, in an HMAC
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

// signHMAC sets the headers with a signature over parts of the request. It reads the body if the body is one of these
// parts. It returns the signature.
func signHMAC(req *http.Request, h *catalog.HMAC, now time.Time) ([]byte, error) {
	key, err := h.Bytes()
	if err != nil {
		return nil, errKey
	}
	// A range of an echo could contain a part of the signature.
	swap.DropRange(req)
	var body []byte
	if strings.Contains(h.Message, "{body") {
		var whole bool
		if body, whole, err = bufferBody(req, maxSigned); err != nil {
			return nil, err
		}
		// The signature needs the whole body before the head leaves.
		if !whole {
			return nil, errTooLong
		}
	}
	path := cmp.Or(req.URL.EscapedPath(), "/")
	sum := sha256.Sum256(body)
	once := map[string]string{
		"{timestamp}": strconv.FormatInt(now.Unix(), 10), "{timestamp:ms}": strconv.FormatInt(now.UnixMilli(), 10),
		"{nonce}": rand.Text(),
	}
	message := fillMarks(h.Message, once, map[string]string{
		"{method}": req.Method, "{host}": req.Host, "{path}": path, "{query}": req.URL.RawQuery, "{body}": string(body),
		"{body:sha256}": hex.EncodeToString(sum[:]),
	})
	m := hmac.New(hashFuncs[h.Hash], key)
	_, _ = m.Write([]byte(message))
	signature := m.Sum(nil)
	for name, value := range h.Headers {
		req.Header.Set(name, fillMarks(value, once, map[string]string{
			"{signature:hex}": hex.EncodeToString(signature), "{signature:base64}": base64.StdEncoding.EncodeToString(signature),
		}))
	}
	return signature, nil
}

var hashFuncs = map[string]func() hash.Hash{"sha256": sha256.New, "sha512": sha512.New, "sha1": sha1.New}

// fillMarks replaces the marks of a text in one pass, so that a mark inside a body stays unchanged.
func fillMarks(text string, tables ...map[string]string) string {
	var pairs []string
	for _, t := range tables {
		for mark, value := range t {
			pairs = append(pairs, mark, value)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
