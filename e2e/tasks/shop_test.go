package tasks

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math/rand"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/timing"
)

// The hosts of a shop.
const (
	crm       = "crm.limited.test"
	deploys   = "deploys.limited.test"
	media     = "media.limited.test"
	graph     = "graph.limited.test"
	stock     = "stock.limited.test" // an MCP server
	telemetry = "h2.test"            // gRPC
)

// crmDocument describes crm.
const crmDocument = `openapi: 3.1.0
info: {title: CRM, version: "1"}
servers: [{url: https://crm.limited.test}]
security: [{key: []}]
paths:
  /customers:
    get:
      summary: List customers
      parameters:
        - {name: limit, in: query, schema: {type: integer, maximum: 20, default: 20}}
        - {name: cursor, in: query, schema: {type: string}}
      responses:
        "200": {description: ok, content: {application/json: {schema: {$ref: "#/components/schemas/Customers"}}}}
  /customers/{id}:
    get:
      summary: Retrieve a customer, with its version as ETag
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses:
        "200": {description: ok, content: {application/json: {schema: {$ref: "#/components/schemas/Customer"}}}}
    patch:
      summary: Change a customer
      parameters:
        - {name: id, in: path, required: true, schema: {type: string}}
        - {name: If-Match, in: header, required: true, schema: {type: string}}
      requestBody: {content: {application/json: {schema: {type: object, properties: {tier: {type: string, enum: [basic, gold]}}}}}}
      responses:
        "200": {description: ok, content: {application/json: {schema: {$ref: "#/components/schemas/Customer"}}}}
  /projects:
    get:
      summary: List projects
      responses:
        "200": {description: ok, content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Project"}}}}}
    post:
      summary: Create a project
      requestBody: {content: {application/json: {schema: {type: object, required: [name], properties: {name: {type: string}}}}}}
      responses:
        "201": {description: made, content: {application/json: {schema: {$ref: "#/components/schemas/Project"}}}}
  /projects/{id}/tasks:
    post:
      summary: Add a task to a project
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      requestBody: {content: {application/json: {schema: {type: object, required: [title], properties: {title: {type: string}}}}}}
      responses: {"201": {description: made}}
components:
  securitySchemes: {key: {type: http, scheme: bearer}}
  schemas:
    Customer:
      type: object
      required: [id, name, country, tier]
      properties: {id: {type: string}, name: {type: string}, country: {type: string}, tier: {type: string, enum: [basic, gold]}}
    Customers:
      type: object
      required: [customers]
      properties:
        customers: {type: array, items: {$ref: "#/components/schemas/Customer"}}
        next_cursor: {type: [string, "null"]}
    Project:
      type: object
      required: [id, name, tasks]
      properties: {id: {type: string}, name: {type: string}, tasks: {type: array, items: {type: string}}}
`

// graphSchema describes graph.
const graphSchema = `
type Query { issues(state: IssueState, first: Int!, after: String): IssueConnection! }
type Mutation { addLabel(issue: ID!, label: String!): Issue! }
enum IssueState { OPEN CLOSED }
type IssueConnection { nodes: [Issue!]! pageInfo: PageInfo! }
type PageInfo { hasNextPage: Boolean! endCursor: String }
type Issue { id: ID! title: String! ageDays: Int! labels: [String!]! }
`

// project is a project of crm.
type project struct {
	ID    string   `json:"id"`
	Name  string   `json:"name"`
	Tasks []string `json:"tasks"`
}

// shop is the state of the shop's hosts.
type shop struct {
	mu       sync.Mutex
	asked    map[string]int
	tier     map[string]string // of customers that changed
	projects []project
	labels   map[string][]string
	parts    map[string]*bytes.Buffer // uploads
	jobs     map[string]time.Time
}

func newShop() *shop {
	return &shop{asked: map[string]int{}, tier: map[string]string{}, labels: map[string][]string{}, parts: map[string]*bytes.Buffer{}, jobs: map[string]time.Time{}}
}

// countRequest counts a request, and returns how often it came before.
func (s *shop) countRequest(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[name]++
	return s.asked[name] - 1
}

// reset undoes every change.
func (s *shop) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tier, s.labels, s.projects = map[string]string{}, map[string][]string{}, nil
}

// countChanges returns the number of customers and issues that changed, and of tasks of the first project.
func (s *shop) countChanges() (customers, issues, tasks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.projects) > 0 {
		tasks = len(s.projects[0].Tasks)
	}
	return len(s.tier), len(s.labels), tasks
}

func (s *shop) customer(n int) map[string]any {
	id := fmt.Sprint("c", n)
	tier := s.tier[id]
	if tier == "" {
		tier = "basic"
	}
	return map[string]any{
		"id": id, "name": []string{"Zoë", "Jürgen", "李雷", "O'Neil, Ltd."}[n%4] + fmt.Sprint(" ", n), "country": []string{"DE", "FR", "JP", "BR", "PL"}[n%5], "tier": tier,
	}
}

func (s *shop) etag(n int) string {
	text, _ := json.Marshal(s.customer(n))
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:6]) + `"`
}

// crm lists 60 customers over pages that sometimes fail, and has projects.
func (s *shop) crm() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /customers", func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		switch asked := s.countRequest("customers " + fmt.Sprint(from)); {
		case from == 20 && asked%2 == 0:
			answer(w, http.StatusTooManyRequests, map[string]string{"error": "slow down"})
			return
		case from == 40 && asked%2 == 0:
			w.Header().Set("Retry-After", time.Now().Add(time.Second).UTC().Format(http.TimeFormat))
			answer(w, http.StatusServiceUnavailable, map[string]string{"error": "deploying"})
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		list := []any{}
		for n := from + 1; n <= min(from+20, 60); n++ {
			list = append(list, s.customer(n))
		}
		var next any
		if from+20 < 60 {
			next = strconv.Itoa(from + 20)
		}
		answer(w, http.StatusOK, map[string]any{"customers": list, "next_cursor": next})
	})
	mux.HandleFunc("GET /customers/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		n, _ := strconv.Atoi(strings.TrimPrefix(r.PathValue("id"), "c"))
		w.Header().Set("ETag", s.etag(n))
		answer(w, http.StatusOK, s.customer(n))
	})
	mux.HandleFunc("PATCH /customers/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		n, _ := strconv.Atoi(strings.TrimPrefix(r.PathValue("id"), "c"))
		var change struct{ Tier string }
		switch match := r.Header.Get("If-Match"); {
		case match == "":
			answer(w, http.StatusPreconditionRequired, map[string]string{"error": "If-Match is missing"})
		case match != s.etag(n):
			answer(w, http.StatusPreconditionFailed, map[string]string{"error": "the customer has changed"})
		case json.NewDecoder(r.Body).Decode(&change) != nil || change.Tier == "":
			answer(w, http.StatusBadRequest, map[string]string{"error": "tier is missing"})
		default:
			s.tier[r.PathValue("id")] = change.Tier
			answer(w, http.StatusOK, s.customer(n))
		}
	})
	mux.HandleFunc("GET /projects", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		answer(w, http.StatusOK, append([]project{}, s.projects...))
	})
	mux.HandleFunc("POST /projects", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		var p project
		_ = json.NewDecoder(r.Body).Decode(&p)
		p.ID, p.Tasks = fmt.Sprint("prj_", 100+len(s.projects)), []string{}
		s.projects = append(s.projects, p)
		answer(w, http.StatusCreated, p)
	})
	mux.HandleFunc("POST /projects/{id}/tasks", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		var task struct{ Title string }
		_ = json.NewDecoder(r.Body).Decode(&task)
		for i, p := range s.projects {
			if p.ID == r.PathValue("id") {
				s.projects[i].Tasks = append(s.projects[i].Tasks, task.Title)
				answer(w, http.StatusCreated, map[string]string{"id": fmt.Sprint("t", len(s.projects[i].Tasks))})
				return
			}
		}
		answer(w, http.StatusNotFound, map[string]string{"error": "no such project"})
	})
	return mux
}

// deploys streams the steps of a deploy without an end, and changes as lines of JSON; jobs take 3 s.
func (s *shop) deploys() http.Handler {
	mux := http.NewServeMux()
	flush := func(w http.ResponseWriter, text string) bool {
		_, err := io.WriteString(w, text)
		return errors.Join(err, http.NewResponseController(w).Flush()) == nil
	}
	mux.HandleFunc("GET /deploys/{id}/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for n := 1; ; n++ {
			text := fmt.Sprintf("id: %d\r\nevent: step\r\ndata: {\"step\":\"s%d\",\"state\":\"%s\"}\r\n\r\n", n, n, []string{"running", "done"}[n%2])
			if n == 9 {
				text = "id: 9\r\nevent: step\r\ndata: {\"step\":\"s9\",\"state\":\"failed\",\ndata: \"message\":\"disk full on node-3\"}\r\n\r\n"
			}
			if n > 12 {
				text = ": ping\r\n\r\n"
			}
			if !flush(w, text) {
				return
			}
			if !timing.WaitFor(r.Context(), 100*time.Millisecond) {
				return
			}
		}
	})
	mux.HandleFunc("GET /watch", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for n := 1; ; n++ {
			if !flush(w, fmt.Sprintf("{\"n\":%d,\"kind\":\"%s\",\"at\":%d}\n", n, []string{"deleted", "added", "changed"}[n%3], time.Now().UnixMilli())) {
				return
			}
			if !timing.WaitFor(r.Context(), 200*time.Millisecond) {
				return
			}
		}
	})
	mux.HandleFunc("POST /jobs", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		id := fmt.Sprint("j", len(s.jobs)+1)
		s.jobs[id] = time.Now()
		w.Header().Set("Location", "/jobs/"+id)
		answer(w, http.StatusAccepted, map[string]string{"id": id, "state": "queued"})
	})
	mux.HandleFunc("GET /jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		began, isKnown := s.jobs[r.PathValue("id")]
		took := time.Since(began)
		switch {
		case !isKnown:
			answer(w, http.StatusNotFound, map[string]string{"error": "no such job"})
		case took < 3*time.Second:
			w.Header().Set("Retry-After", "1")
			answer(w, http.StatusOK, map[string]any{"id": r.PathValue("id"), "state": "running", "percent": int(took.Seconds() * 100 / 3)})
		default:
			answer(w, http.StatusOK, map[string]any{"id": r.PathValue("id"), "state": "done", "percent": 100, "artifact": "build-42.tar"})
		}
	})
	return mux
}

// archive is a zip of 3 MB with two files.
var archive = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	source := rand.New(rand.NewSource(1)) //nolint:gosec // not a secret
	for name, lines := range map[string]int{"a.csv": 40000, "b.csv": 25000} {
		f, _ := z.Create(name)
		for range lines {
			_, _ = fmt.Fprintf(f, "%x,%x\n", source.Int63(), source.Int63())
		}
	}
	_ = z.Close()
	return b.Bytes()
})

// media has an archive whose download breaks off once, and takes uploads in pieces.
func (s *shop) media() http.Handler {
	mux := http.NewServeMux()
	sum := func(data []byte) string {
		sum := sha256.Sum256(data)
		return hex.EncodeToString(sum[:])
	}
	mux.HandleFunc("GET /archive", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"name": "archive.zip", "size": len(archive()), "sha256": sum(archive())})
	})
	mux.HandleFunc("GET /archive.zip", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/zip")
		w.Header().Set("ETag", `"v1"`)
		if r.Header.Get("Range") == "" && s.countRequest("archive")%2 == 0 {
			w.Header().Set("Content-Length", strconv.Itoa(len(archive())))
			w.Header().Set("Accept-Ranges", "bytes")
			_, _ = w.Write(archive()[:1<<20])
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(archive()))
	})
	mux.HandleFunc("POST /uploads", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		id := fmt.Sprint("u", len(s.parts)+1)
		s.parts[id] = &bytes.Buffer{}
		w.Header().Set("Location", "https://"+media+"/uploads/"+id)
		answer(w, http.StatusOK, map[string]any{})
	})
	mux.HandleFunc("PUT /uploads/{id}", func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		part := s.parts[r.PathValue("id")]
		var from, to, size int
		if _, err := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &size); err != nil || part == nil || from != part.Len() || to-from+1 != len(data) {
			answer(w, http.StatusBadRequest, map[string]any{"error": "bad Content-Range", "got": r.Header.Get("Content-Range"), "length": len(data)})
			return
		}
		if to+1 < size && len(data)%(256<<10) != 0 {
			answer(w, http.StatusBadRequest, map[string]string{"error": "pieces are multiples of 262144 bytes"})
			return
		}
		part.Write(data)
		if to+1 < size {
			w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", to))
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
		answer(w, http.StatusCreated, map[string]any{"size": part.Len(), "sha256": sum(part.Bytes())})
	})
	return mux
}

// graph answers a GraphQL query by the names in it. It lists 70 issues over pages, and limits the second page once.
func (s *shop) graph(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Query     string
		Variables map[string]any
	}
	if json.NewDecoder(r.Body).Decode(&q) != nil || q.Query == "" {
		answer(w, http.StatusBadRequest, map[string]any{"errors": []any{map[string]string{"message": "no query"}}})
		return
	}
	text := func(name string) string { v, _ := q.Variables[name].(string); return v }
	if strings.Contains(q.Query, "addLabel") {
		s.mu.Lock()
		defer s.mu.Unlock()
		id, label := text("issue")+text("id"), text("label")
		if label == "" {
			label = "stale"
		}
		if !slices.Contains(s.labels[id], label) {
			s.labels[id] = append(s.labels[id], label)
		}
		answer(w, http.StatusOK, map[string]any{"data": map[string]any{"addLabel": map[string]any{"id": id, "labels": s.labels[id]}}})
		return
	}
	after := text("after") + text("cursor")
	from, _ := strconv.Atoi(after)
	if from == 25 && s.countRequest("issues")%2 == 0 {
		answer(w, http.StatusOK, map[string]any{"data": nil, "errors": []any{map[string]any{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}}})
		return
	}
	size := 25
	if n, ok := q.Variables["first"].(float64); ok && n < 25 {
		size = int(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := []any{}
	for n := from; n < min(from+size, 70); n++ {
		id := fmt.Sprint("I_", n)
		nodes = append(nodes, map[string]any{"id": id, "title": fmt.Sprint("Issue ", n), "ageDays": n * 2, "labels": append([]string{}, s.labels[id]...)})
	}
	answer(w, http.StatusOK, map[string]any{"data": map[string]any{"issues": map[string]any{
		"nodes": nodes, "pageInfo": map[string]any{"hasNextPage": from+size < 70, "endCursor": strconv.Itoa(from + len(nodes))},
	}}})
}

// photo is a picture of 64 pixels a side.
var photo = sync.OnceValue(func() []byte {
	m := image.NewRGBA(image.Rect(0, 0, 64, 64))
	for i := range 64 * 64 {
		m.Set(i%64, i/64, color.RGBA{uint8(i % 64 * 4), uint8(i / 64 * 4), 99, 255})
	}
	var b bytes.Buffer
	_ = png.Encode(&b, m)
	return b.Bytes()
})

// stock is an MCP server with 30 items. The first call for the details of each item fails.
func (s *shop) stock() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "stock", Version: "1"}, nil)
	type page struct {
		PageToken string `json:"page_token,omitempty"`
	}
	type item struct {
		SKU   string `json:"sku"`
		Name  string `json:"name"`
		Count int    `json:"count"`
	}
	type items struct {
		Items []item `json:"items"`
		Next  string `json:"next_page_token,omitempty"`
	}
	of := func(n int) item { return item{fmt.Sprint("s", n), fmt.Sprint("Item ", n), n * 7 % 13} }
	read := &mcp.ToolAnnotations{ReadOnlyHint: true}
	mcp.AddTool(server, &mcp.Tool{Name: "list_items", Description: "List items, 12 a page.", Annotations: read},
		func(_ context.Context, _ *mcp.CallToolRequest, in page) (*mcp.CallToolResult, items, error) {
			from, _ := strconv.Atoi(in.PageToken)
			out := items{Items: []item{}}
			for n := from; n < min(from+12, 30); n++ {
				out.Items = append(out.Items, of(n))
			}
			if from+12 < 30 {
				out.Next = strconv.Itoa(from + 12)
			}
			return nil, out, nil
		})
	type sku struct {
		SKU string `json:"sku"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "get_item", Description: "Details of an item.", Annotations: read},
		func(_ context.Context, _ *mcp.CallToolRequest, in sku) (*mcp.CallToolResult, any, error) {
			if s.countRequest("item "+in.SKU)%2 == 0 {
				return nil, nil, errors.New("warehouse is busy, try again")
			}
			n, _ := strconv.Atoi(strings.TrimPrefix(in.SKU, "s"))
			text, _ := json.Marshal(map[string]any{"sku": in.SKU, "shelf": fmt.Sprint("A", n%4), "supplier": "acme", "reservable": n%3 != 0})
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, nil, nil
		})
	type reserve struct {
		SKU   string `json:"sku"`
		Count int    `json:"count"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "reserve", Description: "Reserve some of an item."},
		func(_ context.Context, _ *mcp.CallToolRequest, in reserve) (*mcp.CallToolResult, any, error) {
			n, _ := strconv.Atoi(strings.TrimPrefix(in.SKU, "s"))
			if of(n).Count < in.Count {
				return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "insufficient stock"}},
					StructuredContent: map[string]any{"code": "INSUFFICIENT", "available": of(n).Count}}, nil, nil
			}
			return nil, map[string]any{"reserved": in.Count, "sku": in.SKU}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "photo", Description: "A photo of an item.", Annotations: read},
		func(context.Context, *mcp.CallToolRequest, sku) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{Data: photo(), MIMEType: "image/png"}}}, nil, nil
		})
	server.AddResource(&mcp.Resource{URI: "stock://warehouses", Name: "warehouses", MIMEType: "application/json"},
		func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: "application/json", Text: `[{"id":"w1","city":"Łódź"},{"id":"w2","city":"Nantes"}]`}}}, nil
		})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}

// streamTemperatures sends twenty messages of gRPC: {value: int32 = 1, at: fixed64 = 2}, the time in milliseconds.
func streamTemperatures(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	for n := range 20 {
		bits := make([]byte, 8)
		binary.LittleEndian.PutUint64(bits, uint64(time.Now().UnixMilli()))
		message := append([]byte{0x08, byte(n * 5 % 37)}, 0x11)
		message = append(message, bits...)
		_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
		_ = http.NewResponseController(w).Flush()
		time.Sleep(60 * time.Millisecond)
	}
	w.Header().Set("Grpc-Status", "0")
}

// hosts returns the handlers.
func (s *shop) hosts() map[string]http.Handler {
	return map[string]http.Handler{
		crm: s.crm(), deploys: s.deploys(), media: s.media(), graph: http.HandlerFunc(s.graph), stock: s.stock(),
		telemetry: http.HandlerFunc(streamTemperatures),
	}
}
