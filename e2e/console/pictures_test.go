package console

import (
	"maps"
	"os"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// addShop adds two APIs that answer like go-httpbin.
func addShop(list []world.API) []world.API {
	for name, more := range map[string]map[string]any{
		"github": {"restricted_methods": []string{"DELETE"}},
		"stripe": {"rules": []any{
			map[string]any{"methods": []string{"POST"}, "path": "/anything/refunds", "then": "approve", "by": "any"},
			map[string]any{"methods": []string{"GET"}, "then": "allow"},
		}},
	} {
		token := map[string]string{"github": "GITHUB_AUTH_TOKEN", "stripe": "STRIPE_AUTH_TOKEN"}[name]
		config := map[string]any{
			"description": name, "domains": []string{name + ".wild.test"},
			"credentials":   map[string]any{token: canary.New(token).Value()},
			"allow_private": list[0].Config["allow_private"], "ca_file": list[0].Config["ca_file"],
		}
		maps.Copy(config, more)
		list = append(list, world.API{Name: name, Config: config})
	}
	return list
}

const (
	compareInvoices = `// Compare open invoices with the issues about them
const read = (url, token) => fetch(url, { headers: { Authorization: "Bearer " + token } }).then((r) => r.json());
const [invoices, issues] = await Promise.all([
  read("https://stripe.wild.test/anything/invoices?status=open", "STRIPE_AUTH_TOKEN"),
  read("https://github.wild.test/anything/issues?labels=invoice", "GITHUB_AUTH_TOKEN"),
]);
console.log("invoices:", invoices.url);
console.log("issues:", issues.url);
const closed = await fetch("https://github.wild.test/anything/issues/42", { method: "DELETE", headers: { Authorization: "Bearer GITHUB_AUTH_TOKEN" } });
console.log("issue 42:", closed.status);
`
	refundInvoice = `// Refund invoice 1042, which was paid twice
await fetch("https://stripe.wild.test/anything/refunds", {
  method: "POST", headers: { Authorization: "Bearer STRIPE_AUTH_TOKEN", "Content-Type": "application/json" },
  body: JSON.stringify({ invoice: "1042", amount: 4800, currency: "eur" }, null, 2),
}).catch(() => {});
`
)

// TestPictures takes the pictures of the documentation, if CODEFORGE_PICTURES names a folder.
func TestPictures(t *testing.T) {
	if os.Getenv("CODEFORGE_PICTURES") == "" {
		return
	}
	w := world.Start(t, world.Config{Change: addShop, Slots: 4})
	b := newTab(t, nil)
	w.MustExecute(t, "// List the skills\nconsole.log([...Deno.readDirSync('/skills')].length)")
	w.MustExecute(t, compareInvoices)
	b.open(t, address(t, w))
	b.see(t, ".page .title", "Compare open invoices")
	b.see(t, ".why", "Why it was refused")
	picture(t, b, "console.png")
	b.screen(t, 390, 844)
	b.prefer(t, "prefers-color-scheme", "dark")
	waits := later(t, w, 90, refundInvoice)
	b.wait(t, "document.querySelector('.rail .badge.hot')?.innerText === '1'")
	b.press(t, "n")
	b.see(t, ".verb", "/anything/refunds")
	picture(t, b, "console-phone.png")
	eval[bool](t, b, "document.querySelector('.actions .btn.no').click() || true")
	<-waits
}
