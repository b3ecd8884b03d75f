package secret

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const canary = "sk-canary-0123456789"

type exported struct {
	Name  string
	Value Value
	Map   map[string]Value
	List  []*Value
}

type unexported struct {
	name  string
	value Value
	inner struct{ value Value }
}

// TestNeverPrinted puts a secret through every ordinary way of printing, alone and inside other values.
// Promise: never-printed
func TestNeverPrinted(t *testing.T) {
	v := New(canary)
	hidden := unexported{name: "x", value: v}
	hidden.inner.value = v
	text, _ := v.MarshalText()
	for name, out := range map[string]string{
		"String": v.String(), "GoString": v.GoString(), "LogValue": v.LogValue().String(), "MarshalText": string(text),
	} {
		refuse(t, name, out)
	}
	values := []any{v, &v, []Value{v}, map[string]Value{"k": v}, exported{"n", v, map[string]Value{"k": v}, []*Value{&v}}, hidden, &hidden, fmt.Errorf("wrapped %v", v)}
	for _, x := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p", "%T", "%U", "%t", "%c", "%10.3s"} {
			refuse(t, fmt.Sprintf("%T with %s", x, verb), fmt.Sprintf(verb, x))
		}
		refuse(t, "Sprint", fmt.Sprint(x))
		refuse(t, "Sprintln", fmt.Sprintln(x))
		refuse(t, "Append", string(fmt.Appendf(nil, "%v", x)))
		var text, js bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("m", "k", x)
		slog.New(slog.NewJSONHandler(&js, nil)).Info("m", "k", x)
		refuse(t, "slog text", text.String())
		refuse(t, "slog JSON", js.String())
		data, _ := json.Marshal(x)
		refuse(t, "json", string(data))
		data, _ = xml.Marshal(x)
		refuse(t, "xml", string(data))
		var g bytes.Buffer
		_ = gob.NewEncoder(&g).Encode(x)
		refuse(t, "gob", g.String())
	}
}

func refuse(t *testing.T, what, out string) {
	t.Helper()
	for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary), canary[:8]} {
		if strings.Contains(out, form) {
			t.Errorf("%s shows the secret: %s", what, out)
		}
	}
}

func TestMask(t *testing.T) {
	v := New(canary)
	data, err := json.Marshal(map[string]Value{"k": v})
	if err != nil || string(data) != `{"k":"[secret]"}` {
		t.Errorf("json gives %s, %v", data, err)
	}
	if got := fmt.Sprintf("%s %v %q %x", v, v, v, v); got != strings.Repeat(Mask+" ", 3)+Mask {
		t.Errorf("printing gives %s", got)
	}
}

func TestValue(t *testing.T) {
	var zero Value
	if !zero.IsEmpty() || zero.Reveal() != "" || !zero.Equal(New("")) || zero.String() != Mask {
		t.Error("the zero Value is not the empty credential")
	}
	if v := New(canary); v.IsEmpty() || v.Reveal() != canary || !v.Equal(New(canary)) || v.Equal(New(canary+"x")) || v.Equal(zero) {
		t.Error("a Value does not hold its credential")
	}
}
