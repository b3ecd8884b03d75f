package catalog

import (
	"fmt"
	"strconv"
	"time"
)

// server reads "mcp". It is nil if that is no object.
func (d *decoder) server(n *node) *Server {
	if n.kind != kindObject {
		d.bad("mcp", string(n.kind), `an object, e.g. {"url": "https://mcp.example.com/mcp"}`)
		return nil
	}
	s := newServer()
	has := serverFields().decode(d, "mcp.", n, s)
	ways := 0
	for _, way := range []string{"url", "package", "command"} {
		if has[way] {
			ways++
		}
	}
	if ways != 1 {
		d.bad("mcp", fmt.Sprintf(`%d of "url", "package" and "command"`, ways), "exactly one of them")
	}
	for _, only := range []struct{ field, with, instead string }{
		{"headers", "url", "env"}, {"transport", "url", ""}, {"args", "package", "command"}, {"permissions", "package", ""},
		{"registry", "package", ""},
	} {
		if has[only.field] && ways == 1 && !has[only.with] {
			d.misplaced(only.field, only.with, only.instead)
		}
	}
	if has["env"] && has["url"] && ways == 1 {
		d.misplaced("env", "package or command", "headers")
	}
	return s
}

// misplaced reports a field that has no meaning for this kind of server.
func (d *decoder) misplaced(field, with, instead string) {
	want := "it left out"
	if instead != "" {
		want = "mcp." + instead
	}
	d.bad("mcp."+field, "a field that is only for a server with "+with, want)
}

// texts reads an object of strings.
func (d *decoder) texts(field string, n *node, example string) map[string]string {
	if n.kind != kindObject {
		d.bad(field, string(n.kind), "an object of strings, e.g. "+example)
		return nil
	}
	out := map[string]string{}
	for _, m := range d.unique(field+".", n, plainKey) {
		var s string
		before := d.count
		d.str(label(field+".", m.key, plainKey(m.key)), m.value, &s)
		if d.count == before {
			out[m.key] = s
		}
	}
	return out
}

// plainKey reports whether a key may be shown: it looks like the name of a variable or a header, and not like what
// belongs behind the colon.
func plainKey(s string) bool {
	const longest = 64
	return isToken(s) && len(s) <= longest && !secretLike(s)
}

// tools reads which tools may be used.
func (d *decoder) tools(field string, s *Server, n *node) {
	if n.kind != kindObject {
		d.bad(field, string(n.kind), `an object, e.g. {"deny": ["delete_*"]}`)
		return
	}
	toolsFields().decode(d, field+".", n, s)
}

// duration reads a number of seconds, or a text such as "90s" or "10m".
func (d *decoder) duration(field string, n *node, to *time.Duration) {
	const want = `seconds, e.g. 90, or a text like "90s" or "10m", at most 24h`
	var out time.Duration
	switch n.kind {
	case kindNumber:
		seconds, err := strconv.ParseFloat(n.text, 64)
		if err != nil || seconds > maxServerTime.Seconds() {
			d.bad(field, "a number that is too large", want)
			return
		}
		out = time.Duration(seconds * float64(time.Second))
	case kindString:
		var err error
		if out, err = time.ParseDuration(n.text); err != nil {
			d.bad(field, "not a duration", want)
			return
		}
	default:
		d.bad(field, string(n.kind), want)
		return
	}
	if out < time.Millisecond || out > maxServerTime {
		d.bad(field, "less than a millisecond, or more than a day", want)
		return
	}
	*to = out
}

// whole reads a whole number.
func (d *decoder) whole(field string, n *node, to *int) {
	if n.kind != kindNumber {
		d.bad(field, string(n.kind), "a whole number, without quotes")
		return
	}
	i, err := strconv.Atoi(n.text)
	if err != nil {
		d.bad(field, "a number that is not whole", "a whole number")
		return
	}
	*to = i
}
