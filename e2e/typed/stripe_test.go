package typed

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stripe/stripe-mock/embedded"
	"github.com/stripe/stripe-mock/server"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// tasks are what a user asks for, the operation that does it, and how code calls it, written from what search shows
// alone: with the client, and with fetch. want is printed by both.
var tasks = []struct{ query, operation, client, fetch, want string }{
	{"refund a charge", "POST /v1/refunds", `{ body: { charge: "ch_123", amount: 100, reason: "duplicate" } }`,
		`"/v1/refunds", { method: "POST", body: new URLSearchParams({ charge: "ch_123", amount: "100", reason: "duplicate" }) }`, "refund"},
	{"create a customer", "POST /v1/customers", `{ body: { email: "a@example.com", name: "A", metadata: { tier: "gold" } } }`,
		`"/v1/customers", { method: "POST", body: new URLSearchParams({ email: "a@example.com", name: "A", "metadata[tier]": "gold" }) }`, "customer"},
	{"list all invoices of a customer", "GET /v1/invoices", `{ query: { customer: "cus_123", limit: 3 } }`,
		`"/v1/invoices?customer=cus_123&limit=3"`, "list"},
	{"retrieve a payment intent", "GET /v1/payment_intents/{intent}", `{ path: { intent: "pi_123" } }`, `"/v1/payment_intents/pi_123"`, "payment_intent"},
	{"create a payment intent", "POST /v1/payment_intents", `{ body: { amount: 2000, currency: "usd", payment_method_types: ["card"] } }`,
		`"/v1/payment_intents", { method: "POST", body: new URLSearchParams({ amount: "2000", currency: "usd", "payment_method_types[0]": "card" }) }`, "payment_intent"},
	{"cancel a subscription", "DELETE /v1/subscriptions/{subscription_exposed_id}", `{ path: { subscription_exposed_id: "sub_123" } }`,
		`"/v1/subscriptions/sub_123", { method: "DELETE" }`, "subscription"},
	{"create a product", "POST /v1/products", `{ body: { name: "Gold" } }`,
		`"/v1/products", { method: "POST", body: new URLSearchParams({ name: "Gold" }) }`, "product"},
	{"create a recurring price", "POST /v1/prices", `{ body: { currency: "usd", unit_amount: 500, product: "prod_123", recurring: { interval: "month" } } }`,
		`"/v1/prices", { method: "POST", body: new URLSearchParams({ currency: "usd", unit_amount: "500", product: "prod_123", "recurring[interval]": "month" }) }`, "price"},
	{"retrieve the balance", "GET /v1/balance", `{}`, `"/v1/balance"`, "balance"},
	{"delete a coupon", "DELETE /v1/coupons/{coupon}", `{ path: { coupon: "c_1" } }`, `"/v1/coupons/c_1", { method: "DELETE" }`, "coupon"},
	// Ten operations that were drawn at random; the code is as it was first written from what the search showed,
	// but for the empty form where a quote is cancelled, which stripe-mock wants.
	{"look up one reversal of a transfer", "GET /v1/transfers/{transfer}/reversals/{id}", `{ path: { transfer: "tr_123", id: "trr_123" } }`,
		`"/v1/transfers/tr_123/reversals/trr_123"`, "transfer_reversal"},
	{"add several lines to a draft invoice at once", "POST /v1/invoices/{invoice}/add_lines",
		`{ path: { invoice: "in_123" }, body: { lines: [{ description: "A", amount: 500 }, { description: "B", amount: 700 }] } }`,
		`"/v1/invoices/in_123/add_lines", { method: "POST", body: new URLSearchParams({ "lines[0][description]": "A", "lines[0][amount]": "500", "lines[1][description]": "B", "lines[1][amount]": "700" }) }`, "in_123"}, // stripe-mock puts the path's value there
	{"show a price", "GET /v1/prices/{price}", `{ path: { price: "price_123" } }`, `"/v1/prices/price_123"`, "price"},
	{"which payment method configurations are there", "GET /v1/payment_method_configurations", `{ query: { limit: 5 } }`, `"/v1/payment_method_configurations?limit=5"`, "list"},
	{"cancel a quote", "POST /v1/quotes/{quote}/cancel", `{ path: { quote: "qt_123" } }`, `"/v1/quotes/qt_123/cancel", { method: "POST", body: new URLSearchParams() }`, "quote"},
	{"close a financial account", "POST /v1/treasury/financial_accounts/{financial_account}/close",
		`{ path: { financial_account: "fa_123" }, body: { forwarding_settings: { type: "financial_account", financial_account: "fa_456" } } }`,
		`"/v1/treasury/financial_accounts/fa_123/close", { method: "POST", body: new URLSearchParams({ "forwarding_settings[type]": "financial_account", "forwarding_settings[financial_account]": "fa_456" }) }`, "treasury.financial_account"},
	{"list the transactions of a treasury financial account", "GET /v1/treasury/transactions", `{ query: { financial_account: "fa_123", limit: 10 } }`,
		`"/v1/treasury/transactions?financial_account=fa_123&limit=10"`, "list"},
	{"list my uploaded files", "GET /v1/files", `{ query: { purpose: "dispute_evidence", created: { gte: 1700000000 } } }`,
		`"/v1/files?purpose=dispute_evidence&created[gte]=1700000000"`, "list"},
	{"which attempts were made for a setup intent", "GET /v1/setup_attempts", `{ query: { setup_intent: "seti_123" } }`, `"/v1/setup_attempts?setup_intent=seti_123"`, "list"},
	{"who are the climate suppliers", "GET /v1/climate/suppliers", `{}`, `"/v1/climate/suppliers"`, "list"},
}

// TestStripe: twenty tasks by search alone. The operation is among what one question finds, and code that was written from
// that is answered right at the first try by a server that checks requests by Stripe's own document.
func TestStripe(t *testing.T) {
	if world.CurrentMode() == world.Docker {
		testkit.SkipBecause(t, "the upstream of Docker mode has no stripe-mock; what differs between the modes is not Stripe's")
	}
	fixtures, err := server.LoadFixtures(embedded.OpenAPIFixtures, "")
	testkit.Must(t, err)
	spec, err := server.LoadSpec(embedded.OpenAPISpec, "")
	testkit.Must(t, err)
	stub, err := server.NewStubServer(fixtures, spec, false, false)
	testkit.Must(t, err)
	root := t.TempDir()
	path := filepath.Join(root, "spec3.json")
	testkit.Must(t, os.WriteFile(path, embedded.OpenAPISpec, 0o600))
	d := importedFile(t, "stripe", path, "--scheme", "bearerAuth", "--server", "https://"+upstream.Wild, "--token", "STRIPE_TOKEN")
	key := canary.New("STRIPE_TOKEN")
	api := d.api()
	api.Config = map[string]any{
		"description": "Stripe", "domains": []string{upstream.Wild}, "ca_file": "ca.pem",
		"allow_private": []string{upstream.Embedded.Private.String() + "/32"},
		"credentials":   map[string]any{"STRIPE_TOKEN": "sk_test_" + strings.NewReplacer("-", "", "_", "").Replace(key.Value())},
	}
	w := world.Start(t, world.Config{APIs: []world.API{api}, Hosts: map[string]http.Handler{upstream.Wild: http.HandlerFunc(stub.HandleRequest)}})
	for _, task := range tasks {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		res, err := w.Session().CallTool(ctx, &mcp.CallToolParams{Name: "list_apis", Arguments: map[string]any{"query": task.query}})
		cancel()
		testkit.Must(t, err)
		found := ""
		for _, c := range res.Content {
			if text, ok := c.(*mcp.TextContent); ok {
				found += text.Text
			}
		}
		if !strings.Contains(found, "\n"+task.operation+"  ") && !strings.Contains(found, "\n"+task.operation+"\n") {
			t.Errorf("%s does not find %s:\n%s", task.query, task.operation, found)
		}
		for form, code := range map[string]string{
			"client": fmt.Sprintf("import { stripe } from \"/apis/stripe.ts\";\nconst answer = await stripe(%q, %s);\nconsole.log(answer.object);\n", task.operation, task.client),
			"fetch": fmt.Sprintf("const call = (path: string, init = {}) => fetch(\"https://%s\" + path, { headers: { Authorization: \"Bearer STRIPE_TOKEN\" }, ...init });\n"+
				"const response = await call(%s);\nconst answer = await response.json();\nconsole.log(response.ok ? answer.object : JSON.stringify(answer));\n", upstream.Wild, task.fetch),
		} {
			if res := w.MustExecute(t, code, "stripe"); res.IsError || res.Out != task.want+"\n" {
				t.Errorf("%s with %s: %s %s\n%s", task.query, form, res.Out, res.Notes, code)
			}
		}
	}
	t.Run("pages", func(t *testing.T) {
		res := w.MustExecute(t, `import { stripe } from "/apis/stripe.ts";
let n = 0;
for await (const c of stripe.pages("GET /v1/customers", { query: { limit: 1 } })) { console.log(c.object); if (++n === 2) break; }`, "stripe")
		if res.IsError || !strings.HasPrefix(res.Out, "customer\n") {
			t.Errorf("%s %s", res.Out, res.Notes)
		}
	})
}
