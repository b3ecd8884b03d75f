package broker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSchemaCost: whatever a server's schema is, checking arguments by it takes little time, which no caller can end.
func TestSchemaCost(t *testing.T) {
	const many = 8000
	list := func(one string, n int) string { return "[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]" }
	times := list(`{"$ref":"#/$defs/a"}`, many)
	var properties []string
	for i := range many / 2 {
		properties = append(properties, fmt.Sprintf(`"property%d":{}`, i))
	}
	object := `{` + strings.Join(properties, ",") + `}`
	for name, c := range map[string][2]string{
		"a large value, many enums": {`{"allOf":` + list(`{"enum":[{}]}`, many) + `}`, `{"x":"` + strings.Repeat("x", 900<<10) + `"}`},
		"a large schema":            {`{"x":` + list(`{}`, 6<<20) + `}`, `{}`},
		"a large enum, many times":  {`{"$defs":{"a":{"enum":` + list(`"a"`, many) + `}},"properties":{"x":{"anyOf":` + times + `}}}`, `{"x":"b"}`},
		"itself, many times":        {`{"allOf":` + list(`{"$ref":"#"}`, many) + `}`, `{"x":1}`},
		"long references": {`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#` + strings.Repeat("/$defs", many) + `"}},"allOf":` +
			times + `}`, `{"x":1}`},
		"many types":        {`{"$defs":{"a":{"type":` + list(`"a"`, many) + `}},"properties":{"x":{"anyOf":` + times + `}}}`, `{"x":"b"}`},
		"many required":     {`{"$defs":{"a":{"required":` + list(`"a"`, many) + `}},"allOf":` + times + `}`, `{"a":"b"}`},
		"many properties":   {`{"$defs":{"a":{"properties":` + object + `}},"allOf":` + list(`{"$ref":"#/$defs/a"}`, many/2) + `}`, `{"a":"b"}`},
		"no such arguments": {`{"$defs":{"a":{"additionalProperties":false,"properties":` + object + `}},"anyOf":` + list(`{"$ref":"#/$defs/a"}`, many/2) + `}`, `{"a":"b"}`},
	} {
		began := time.Now()
		mistakes(json.RawMessage(c[0]), json.RawMessage(c[1]))
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: %v", name, took)
		}
	}
}
