package swap

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// BenchmarkBody swaps one name in bodies of three kinds. Small ones have a length, large ones stream.
func BenchmarkBody(b *testing.B) {
	var c []catalog.Credential
	for i := range 8 {
		c = append(c, credential(fmt.Sprintf("API_KEY_%d", i), fmt.Sprintf("sk_live_%024d", i), "header", "body:key"))
	}
	s := New(c)
	const row = `{"id":"cus_9s6XKzkNRiz8i3","object":"customer","created":1483565364,"delinquent":false,` +
		`"description":"A customer of ours: \"none\" of the USA","email":null,"tax":{"rate":7.25,"tags":["a","b"]}}`
	pair := "id=cus_9s6XKzkNRiz8i3&object=customer&created=1483565364&description=A+customer+of+ours%3A+none+of+the+USA&"
	for _, size := range []int{2 << 10, 4 << 20} {
		rows := strings.Repeat(row+",\n", size/len(row)) + row
		for _, body := range []struct{ kind, text string }{
			{"application/json", `{"key":"API_KEY_0","rows":[` + rows + `]}`},
			{"application/x-www-form-urlencoded", strings.Repeat(pair, size/len(pair)) + "key=API_KEY_0"},
			{"application/octet-stream", strings.Repeat("key = API_KEYS ; ", size/17)},
		} {
			b.Run(fmt.Sprintf("%s/%d", body.kind, size), func(b *testing.B) {
				b.SetBytes(int64(len(body.text)))
				b.ReportAllocs()
				buf := make([]byte, 32<<10)
				for b.Loop() {
					req := request(b, "POST", "https://h/v1/things", body.text, "Content-Type", body.kind)
					if _, err := s.SwapRequest(req, Options{Allowed: c}); err != nil {
						b.Fatal(err)
					}
					for {
						_, err := req.Body.Read(buf)
						if err == io.EOF { //nolint:errorlint // as it is
							break
						}
						if err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}
