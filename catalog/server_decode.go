package catalog

import (
	"fmt"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

// readServer reads "mcp". It returns nil if the value is not an object.
func (d *configDecoder) readServer(n *node) *mcpserver.Settings {
	if n.Kind != jsonread.Object {
		d.AddError("mcp", n.Kind.String(), `an object, e.g. {"url": "https://mcp.example.com/mcp"}`)
		return nil
	}
	s := newServer()
	has, _ := serverFields().decodeObject(d, "mcp.", n, s)
	ways := 0
	for _, way := range []string{"url", "package", "command"} {
		if has[way] {
			ways++
		}
	}
	if ways != 1 {
		d.AddError("mcp", fmt.Sprintf(`%d of "url", "package" and "command"`, ways), "exactly one of them")
	}
	for _, only := range []struct{ field, with, instead string }{
		{"headers", "url", "env"}, {"transport", "url", ""}, {"args", "package", "command"}, {"permissions", "package", ""},
		{"registry", "package", ""},
	} {
		// With two kinds of server, the first mistake is enough.
		if has[only.field] && ways == 1 && !has[only.with] {
			d.reportMisplaced(only.field, only.with, only.instead)
		}
	}
	if has["env"] && has["url"] && ways == 1 {
		d.reportMisplaced("env", "package or command", "headers")
	}
	if has["folders"] && has["url"] && ways == 1 {
		d.reportMisplaced("folders", "package or command", "")
	}
	return s
}

// reportMisplaced reports a field that has no meaning for this kind of server.
func (d *configDecoder) reportMisplaced(field, with, instead string) {
	want := "it left out"
	if instead != "" {
		want = "mcp." + instead
	}
	d.AddError("mcp."+field, "a field that is only for a server with "+with, want)
}

// milliseconds reads a duration.
func (d *configDecoder) milliseconds(field string, n *node, to *int64) {
	t := time.Duration(*to) * time.Millisecond
	d.ReadDuration(field, n, &t)
	*to = t.Milliseconds()
}

// readTexts reads an object of strings.
func (d *configDecoder) readTexts(field string, n *node, example string) map[string]string {
	if n.Kind != jsonread.Object {
		d.AddError(field, n.Kind.String(), "an object of strings, e.g. "+example)
		return nil
	}
	out := map[string]string{}
	for _, m := range d.ReadMembers(field+".", n, isPlainKey) {
		var s string
		before := d.Count
		d.ReadString(strictjson.FieldLabel(field+".", m.Key, isPlainKey(m.Key)), m.Node, &s)
		if d.Count == before {
			out[m.Key] = s
		}
	}
	return out
}

// isPlainKey reports whether a message may show a key. It looks like the name of a variable or a header, and not like a
// value.
func isPlainKey(s string) bool {
	const longest = 64
	return isToken(s) && len(s) <= longest && !hasLikelySecret(s)
}

// readTools reads the allowed and denied tools.
func (d *configDecoder) readTools(field string, s *mcpserver.Settings, n *node) {
	if n.Kind != jsonread.Object {
		d.AddError(field, n.Kind.String(), `an object, e.g. {"deny": ["delete_*"]}`)
		return
	}
	toolsFields().decodeObject(d, field+".", n, s)
}
