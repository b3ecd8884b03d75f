package console

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func TestDevShots(t *testing.T) {
	b := newTab(t, nil)
	r, err := http.Get("http://127.0.0.1:9911/x-code")
	if err != nil {
		t.Fatal(err)
	}
	code, _ := io.ReadAll(r.Body)
	if os.Getenv("PHONE") != "" {
		b.screen(t, 390, 844)
	}
	b.prefer(t, "prefers-color-scheme", os.Getenv("THEME"))
	b.open(t, "http://localhost:9911/console#code="+string(code))
	time.Sleep(time.Second)
	for _, p := range strings.Split(os.Getenv("PAGES"), ",") {
		name := strings.NewReplacer("/", "-", "?", "-").Replace(p)
		if p == "palette" {
			b.press(t, "ctrl-k")
		} else if p == "help" {
			b.press(t, "?")
		} else {
			eval[string](t, b, "location.hash='#/"+p+"'")
		}
		time.Sleep(900 * time.Millisecond)
		os.WriteFile("/tmp/shots/"+name+os.Getenv("SUFFIX")+".png", b.picture(t), 0o600)
	}
	for _, c := range b.complaints() {
		t.Log(c)
	}
}
