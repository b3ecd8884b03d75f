package tasks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The hosts of the stand-ins.
const (
	billing = "b.wild.test"
	tickets = "c.wild.test"
	feed    = "d.wild.test"
	drive   = "files.limited.test"
	storage = "blobs.limited.test"  // to which drive redirects downloads
	orders  = "orders.limited.test" // an MCP server
)

// billingDocument describes billing.
const billingDocument = `openapi: 3.1.0
info: {title: Billing, version: "1"}
servers: [{url: https://b.wild.test/v1}]
security: [{key: []}]
paths:
  /invoices:
    get:
      operationId: listInvoices
      summary: List invoices
      parameters:
        - {name: status, in: query, schema: {type: string, enum: [open, paid, void]}}
        - {name: page-size, in: query, schema: {type: integer, maximum: 50}}
        - {name: starting_after, in: query, schema: {type: string}}
      responses:
        "200": {description: ok, content: {application/json: {schema: {$ref: "#/components/schemas/InvoiceList"}}}}
  /invoices/{id}/send:
    post:
      summary: Send an invoice to its customer
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses: {"200": {description: ok}}
components:
  securitySchemes: {key: {type: http, scheme: bearer}}
  schemas:
    Invoice:
      type: object
      required: [id, status, currency, amount_cents]
      properties:
        id: {type: string}
        status: {type: string, enum: [open, paid, void]}
        currency: {type: string}
        amount_cents: {type: integer}
        customer: {type: string, description: ID of a customer in the CRM}
    InvoiceList:
      type: object
      properties:
        data: {type: array, items: {$ref: "#/components/schemas/Invoice"}}
        has_more: {type: boolean}
`

// standIns are the servers of the tasks. Each requires the credential of its API.
type standIns struct {
	mu sync.Mutex
	// asked counts the requests of a page.
	asked map[string]int
	// ticket is the state of each ticket.
	ticket map[int]string
	// keys are the credentials, by host.
	keys map[string]string
	shop *shop
}

func newStandIns() *standIns {
	s := &standIns{asked: map[string]int{}, ticket: map[int]string{}, keys: map[string]string{}, shop: newShop()}
	s.resetTickets()
	return s
}

// resetTickets makes 37 tickets stale.
func (s *standIns) resetTickets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range 37 {
		s.ticket[n+1] = "stale"
	}
}

// countStale returns the number of stale tickets.
func (s *standIns) countStale() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, state := range s.ticket {
		if state == "stale" {
			n++
		}
	}
	return n
}

// countRequest counts a request, and returns how often it came before.
func (s *standIns) countRequest(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[name]++
	return s.asked[name] - 1
}

// hosts returns the handlers.
func (s *standIns) hosts() map[string]http.Handler {
	out := map[string]http.Handler{
		billing: http.HandlerFunc(s.billing), tickets: s.tickets(), feed: s.feed(), drive: s.drive(), orders: s.orders(),
	}
	maps.Copy(out, s.shop.hosts())
	for host, next := range out {
		out[host] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+s.keys[host] {
				http.Error(w, `{"message": "Bad credentials"}`, http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	out[storage] = http.HandlerFunc(s.storage)
	return out
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// billing lists 90 invoices. Every second request of the second page answers 429, and two of three requests of the
// third 500.
func (s *standIns) billing(w http.ResponseWriter, r *http.Request) {
	if id, isSend := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/v1/invoices/"), "/send"); isSend && r.Method == http.MethodPost {
		s.countRequest("sent " + id)
		answer(w, http.StatusOK, map[string]string{"id": id, "sent_to": "customer"})
		return
	}
	q := r.URL.Query()
	size, err := strconv.Atoi(q.Get("page-size"))
	if err != nil || size < 1 || size > 50 {
		size = 10
	}
	all, from := []map[string]any{}, 0
	for n := 1; n <= 90; n++ {
		id, status := fmt.Sprint("in_", n), []string{"open", "paid", "void"}[n%3]
		if want := q.Get("status"); want != "" && want != status {
			continue
		}
		all = append(all, map[string]any{"id": id, "status": status, "currency": []string{"EUR", "USD"}[n%2], "amount_cents": n * 100, "customer": fmt.Sprint("c", n%60+1)})
		if id == q.Get("starting_after") {
			from = len(all)
		}
	}
	switch page := from / size; {
	case page == 1 && s.countRequest("page 1")%2 == 0:
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusTooManyRequests, map[string]string{"error": "rate_limited"})
	case page == 2 && s.countRequest("page 2")%3 < 2:
		answer(w, http.StatusInternalServerError, map[string]string{"error": "try again"})
	default:
		to := min(from+size, len(all))
		answer(w, http.StatusOK, map[string]any{"data": all[from:to], "has_more": to < len(all)})
	}
}

// tickets lists stale tickets over pages with a Link header, changes them, and makes labels.
func (s *standIns) tickets() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /tickets", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		page, _ := strconv.Atoi(r.URL.Query().Get("page"))
		page = max(page, 1)
		var all []map[string]any
		for n := 1; n <= len(s.ticket); n++ {
			if state := r.URL.Query().Get("state"); state == "" || state == s.ticket[n] {
				all = append(all, map[string]any{"id": n, "state": s.ticket[n]})
			}
		}
		from, to := min((page-1)*10, len(all)), min(page*10, len(all))
		if to < len(all) {
			next := *r.URL
			q := next.Query()
			q.Set("page", strconv.Itoa(page+1))
			w.Header().Set("Link", fmt.Sprintf(`<https://%s/tickets?%s>; rel="next"`, tickets, q.Encode()))
		}
		answer(w, http.StatusOK, all[from:to])
	})
	mux.HandleFunc("PATCH /tickets/{id}", func(w http.ResponseWriter, r *http.Request) {
		var change struct{ State string }
		id, _ := strconv.Atoi(r.PathValue("id"))
		if json.NewDecoder(r.Body).Decode(&change) != nil || change.State == "" {
			answer(w, http.StatusUnprocessableEntity, map[string]string{"message": "state is missing"})
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ticket[id] = change.State
		answer(w, http.StatusOK, map[string]any{"id": id, "state": change.State})
	})
	mux.HandleFunc("POST /labels", func(w http.ResponseWriter, r *http.Request) {
		var label struct{ Name string }
		_ = json.NewDecoder(r.Body).Decode(&label)
		answer(w, http.StatusCreated, map[string]any{"id": "label-" + label.Name, "name": label.Name})
	})
	mux.HandleFunc("POST /tickets/{id}/labels", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, map[string]any{"id": r.PathValue("id")})
	})
	return mux
}

// feed streams events that break off once, and lines of JSON with multi-byte letters.
func (s *standIns) feed() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		from, _ := strconv.Atoi(r.Header.Get("Last-Event-ID"))
		for n := from + 1; n <= 60; n++ {
			_, _ = fmt.Fprintf(w, ": beat\n\nid: %d\nevent: log\ndata: {\"level\":\"%s\",\ndata: \"n\":%d}\n\n", n, []string{"info", "warn", "error"}[n%3], n)
			_ = http.NewResponseController(w).Flush()
			if time.Sleep(5 * time.Millisecond); n == 40 && from == 0 {
				panic(http.ErrAbortHandler)
			}
		}
		_, _ = io.WriteString(w, "event: done\ndata: {}\n\n")
	})
	mux.HandleFunc("GET /export.ndjson", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for n := range 2000 {
			line := fmt.Sprintf("{\"n\":%d,\"city\":\"%s\"}\n", n, []string{"Zürich", "東京", "Kraków", "São Paulo"}[n%4])
			_, _ = io.WriteString(w, line[:len(line)/2])
			if n%100 == 0 {
				_ = http.NewResponseController(w).Flush()
				time.Sleep(3 * time.Millisecond)
			}
			_, _ = io.WriteString(w, line[len(line)/2:])
		}
	})
	return mux
}

// report is the file that drive has: a spreadsheet of 3 MB with a byte order mark and quoted fields.
var report = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	b.WriteString("\ufeffregion,customer,amount\r\n")
	for n := range 60000 {
		fmt.Fprintf(&b, "%s,\"Müller, Söhne & Co. %d\",%d.50\r\n", []string{"north", "south", "east"}[n%3], n, n%1000)
	}
	return b.Bytes()
})

// drive redirects downloads of its one file to storage, and accepts uploads in forms and in pieces.
func (s *standIns) drive() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /files", func(w http.ResponseWriter, _ *http.Request) {
		sum := sha256.Sum256(report())
		answer(w, http.StatusOK, map[string]any{"files": []any{map[string]any{
			"id": "f1", "name": "report 2026.csv", "size": len(report()), "sha256": hex.EncodeToString(sum[:]),
		}}})
	})
	mux.HandleFunc("GET /files/f1/content", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+storage+"/blob/f1?sig=abc", http.StatusFound)
	})
	mux.HandleFunc("POST /files", func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(64 << 20); err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"message": err.Error()})
			return
		}
		f, head, err := r.FormFile("file")
		if err != nil || !json.Valid([]byte(r.FormValue("metadata"))) {
			answer(w, http.StatusBadRequest, map[string]string{"message": "want the parts metadata (JSON) and file"})
			return
		}
		defer f.Close()
		data, _ := io.ReadAll(f)
		sum := sha256.Sum256(data)
		answer(w, http.StatusCreated, map[string]any{"id": "f2", "name": head.Filename, "size": len(data), "sha256": hex.EncodeToString(sum[:])})
	})
	return mux
}

// storage serves the content to a request with only the link. Like S3, it refuses a request with a credential.
func (s *standIns) storage(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		http.Error(w, "<Error><Code>InvalidArgument</Code><Message>Only one auth mechanism allowed</Message></Error>", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/csv")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(report()))
}

// chart is a picture of one pixel.
const chart = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// orders is an MCP server with 45 orders.
func (s *standIns) orders() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "orders", Version: "1"}, nil)
	yes := true
	type search struct {
		Status string `json:"status" jsonschema:"late, sent or done"`
		Cursor string `json:"cursor,omitempty" jsonschema:"nextCursor of the page before"`
	}
	type order struct {
		ID     string  `json:"id"`
		Total  float64 `json:"total"`
		Status string  `json:"status"`
	}
	type page struct {
		Orders []order `json:"orders"`
		Next   string  `json:"nextCursor,omitempty"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "search-orders", Description: "Find orders by status, 10 a page.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in search) (*mcp.CallToolResult, page, error) {
			out, from := page{Orders: []order{}}, 0
			if in.Cursor != "" {
				from, _ = strconv.Atoi(in.Cursor)
			}
			for n := from; n < 45 && len(out.Orders) < 10; n++ {
				out.Next = strconv.Itoa(n + 1)
				if status := []string{"late", "sent", "done"}[n%3]; status == in.Status {
					out.Orders = append(out.Orders, order{fmt.Sprint("o", n), float64(n * 20), status})
				}
			}
			if len(out.Orders) < 10 {
				out.Next = ""
			}
			return nil, out, nil
		})
	type refund struct {
		Order  string  `json:"order"`
		Amount float64 `json:"amount" jsonschema:"in EUR"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "refund-order", Description: "Refund a part of an order.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes}},
		func(_ context.Context, _ *mcp.CallToolRequest, in refund) (*mcp.CallToolResult, any, error) {
			if in.Amount > 50 {
				return nil, nil, fmt.Errorf("order %s: refunds over 50 EUR need a manager", in.Order)
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "refunded"}}}, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "draw-chart", Description: "Draw the orders of a status."},
		func(context.Context, *mcp.CallToolRequest, search) (*mcp.CallToolResult, any, error) {
			data, _ := base64.StdEncoding.DecodeString(chart)
			return &mcp.CallToolResult{Content: []mcp.Content{
				&mcp.TextContent{Text: "Orders by day"}, &mcp.ImageContent{Data: data, MIMEType: "image/png"},
			}}, nil, nil
		})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}
