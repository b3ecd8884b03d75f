// Command gopeer serves the readings of net/http, encoding/json, gjson and jsoniter to proxy/internal/egress. It prints
// its port.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	jsoniter "github.com/json-iterator/go"
	"github.com/tidwall/gjson"
)

// The words of proxy/internal/egress/readings_types_test.go.
const (
	InPath     = "path"
	InQuery    = "query"
	InHeader   = "header"
	InAuth     = "auth"
	InBody     = "body"
	InFile     = "file"
	InFilename = "filename"

	KindHead      = "head"
	KindQuery     = "query"
	KindForm      = "form"
	KindMultipart = "multipart"
	KindJSON      = "json"
	KindUntyped   = "untyped"
)

// Field is a place, a name and a value.
type Field [3]string

// Reading is how one reader read a request or a part of it.
type Reading struct {
	Reader string  `json:"reader"`
	Kind   string  `json:"kind"`
	Method string  `json:"method"`
	Fields []Field `json:"fields"`
	Error  string  `json:"error"`
}

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
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Connection", "close")
		_ = json.NewEncoder(w).Encode(map[string]any{"readings": goReadings(r, body)})
	}))
}

func goReadings(r *http.Request, body []byte) []Reading {
	var out []Reading
	say := func(reader, kind string, fields []Field, err error) {
		g := Reading{Reader: reader, Kind: kind, Method: r.Method, Fields: fields}
		if err != nil {
			g.Error = err.Error()
		}
		out = append(out, g)
	}
	say("go", KindHead, goHead(r), nil)
	query, err := url.ParseQuery(r.URL.RawQuery)
	say("go", KindQuery, goValues(InQuery, query), err)
	if len(body) == 0 {
		return out
	}
	kind := strings.ToLower(r.Header.Get("Content-Type"))
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	switch {
	case strings.HasPrefix(kind, "multipart/"):
		err := again.ParseMultipartForm(1 << 20)
		if again.MultipartForm != nil {
			defer again.MultipartForm.RemoveAll() //nolint:errcheck // files of a test
		}
		say("go", KindMultipart, goMultipart(again.MultipartForm), err)
		say("go-parts", KindMultipart, goParts(r, body), nil)
	case strings.Contains(kind, "urlencoded"):
		err := again.ParseForm()
		say("go", KindForm, goValues(InBody, again.PostForm), err)
	}
	which := KindUntyped
	if strings.Contains(kind, "json") {
		which = KindJSON
	}
	var value any
	err = json.NewDecoder(bytes.NewReader(body)).Decode(&value)
	say("go-json", which, flatten(value, "", nil), err)
	value = nil
	err = jsoniter.ConfigFastest.Unmarshal(body, &value)
	say("jsoniter", which, flatten(value, "", nil), err)
	say("gjson", which, goGJSON(gjson.ParseBytes(body), "", nil), nil)
	return out
}

func goHead(r *http.Request) []Field {
	var out []Field
	for name, values := range r.Header {
		for _, v := range values {
			out = append(out, Field{InHeader, strings.ToLower(name), v})
		}
	}
	out = append(out, Field{InPath, "", r.URL.Path}, Field{InPath, "", r.URL.EscapedPath()})
	if user, password, ok := r.BasicAuth(); ok {
		out = append(out, Field{InAuth, "user", user}, Field{InAuth, "password", password})
	}
	return out
}

func goValues(place string, v url.Values) []Field {
	var out []Field
	for name, values := range v {
		for _, value := range values {
			out = append(out, Field{place, name, value})
		}
	}
	return out
}

func goMultipart(form *multipart.Form) []Field {
	if form == nil {
		return nil
	}
	out := goValues(InBody, form.Value)
	for name, files := range form.File {
		for _, f := range files {
			out = append(out, Field{InFilename, name, f.Filename})
			if in, err := f.Open(); err == nil {
				text, _ := io.ReadAll(in)
				in.Close()
				out = append(out, Field{InFile, name, string(text)})
			}
		}
	}
	return out
}

// goParts is what a server sees that reads the parts in order.
func goParts(r *http.Request, body []byte) []Field {
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	parts, err := again.MultipartReader()
	if err != nil {
		return nil
	}
	var out []Field
	for {
		part, err := parts.NextPart()
		if err != nil {
			return out
		}
		text, _ := io.ReadAll(part)
		place := InBody
		if part.FileName() != "" {
			place = InFile
			out = append(out, Field{InFilename, part.FormName(), part.FileName()})
		}
		out = append(out, Field{place, part.FormName(), string(text)})
	}
}

func flatten(value any, name string, out []Field) []Field {
	switch v := value.(type) {
	case map[string]any:
		for k, e := range v {
			out = flatten(e, joined(name, k), out)
		}
	case []any:
		for _, e := range v {
			out = flatten(e, name, out)
		}
	case string:
		out = append(out, Field{InBody, name, v})
	}
	return out
}

// goGJSON walks a document with gjson, which does not validate it: its contract is for valid JSON, and servers use it
// on any.
func goGJSON(r gjson.Result, name string, out []Field) []Field {
	switch {
	case r.IsObject():
		r.ForEach(func(k, v gjson.Result) bool { out = goGJSON(v, joined(name, k.String()), out); return true })
	case r.IsArray():
		r.ForEach(func(_, v gjson.Result) bool { out = goGJSON(v, name, out); return true })
	default:
		out = append(out, Field{InBody, name, r.String()})
	}
	return out
}

func joined(name, key string) string {
	if name == "" {
		return key
	}
	return name + "." + key
}
