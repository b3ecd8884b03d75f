package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// changes is a history of skills.
type changes struct {
	*memory
	versions []operatorapi.SkillVersion
	sources  map[int]string
	err      error
	stored   []string
}

func (c *changes) SkillVersions(_ context.Context, name string) (of []operatorapi.SkillVersion, err error) {
	for _, v := range c.versions {
		if name == "" || v.Skill == name {
			of = append(of, v)
		}
	}
	return of, c.err
}

func (c *changes) SkillSource(_ context.Context, _ string, n int) (string, error) {
	source, ok := c.sources[n]
	if !ok {
		return "", history.ErrUnknown
	}
	return source, nil
}

func (c *changes) RecordSkill(v operatorapi.SkillVersion, source string) {
	c.stored = append(c.stored, fmt.Sprint(v.Skill, " ", v.By, " ", v.Deleted, " ", source))
}

// skilled is a console with the skill "one" and its history, behind a session.
func skilled(t *testing.T) (dir string, h *changes, ask1 func(method, path, body string) *httptest.ResponseRecorder) {
	t.Helper()
	c, m, handler := served(t, "token", 0)
	dir = t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "one.ts"), []byte("new"), 0o644))
	s, err := skill.OpenStore(dir, false)
	testkit.Must(t, err)
	testkit.Must(t, s.PinIn(t.TempDir()))
	t.Cleanup(func() { _ = s.Close() })
	h = &changes{
		memory:  m,
		sources: map[int]string{1: "old", 2: "redacted"},
		versions: []operatorapi.SkillVersion{
			{Skill: "one", Version: 2, SHA: skill.SourceSum("other")}, {Skill: "one", Version: 1, SHA: skill.SourceSum("old")}, {Skill: "gone", Version: 1, Deleted: true},
		},
	}
	c.cfg.Skills, c.cfg.History = s, h
	session := signedIn(t, handler, "token")
	return dir, h, func(method, path, body string) *httptest.ResponseRecorder {
		return ask(handler, method, API+path, body, session, "Content-Type: application/json")
	}
}

// TestReadSkill: a skill that is gone is shown as long as it has versions, and any other error is one.
func TestReadSkill(t *testing.T) {
	dir, h, ask := skilled(t)
	for path, want := range map[string]int{
		"skills/one": http.StatusOK, "skills/gone": http.StatusOK, "skills/other": http.StatusNotFound, "skills/a%2Fb": http.StatusNotFound,
		"skills/one/versions/1": http.StatusOK, "skills/one/versions/9": http.StatusNotFound, "skills/one/versions/x": http.StatusNotFound,
	} {
		if w := ask(http.MethodGet, path, ""); w.Code != want {
			t.Errorf("%s: %d, want %d\n%s", path, w.Code, want, w.Body)
		}
	}
	if text := ask(http.MethodGet, "skills/one", "").Body.String(); !strings.Contains(text, `"source":"new"`) || !strings.Contains(text, `"deleted":false`) {
		t.Error(text)
	}
	if text := ask(http.MethodGet, "skills/gone", "").Body.String(); !strings.Contains(text, `"deleted":true`) {
		t.Error(text)
	}
	h.err = errors.New("no disk")
	if w := ask(http.MethodGet, "skills/one", ""); w.Code != http.StatusOK {
		t.Errorf("without a history: %d %s", w.Code, w.Body)
	}
	if w := ask(http.MethodGet, "skills/gone", ""); w.Code != http.StatusNotFound {
		t.Errorf("gone, without a history: %d %s", w.Code, w.Body)
	}
	h.err = nil
	testkit.Must(t, os.Remove(filepath.Join(dir, "one.ts")))
	testkit.Must(t, os.Symlink("/proc/self/status", filepath.Join(dir, "one.ts")))
	if w := ask(http.MethodGet, "skills/one", ""); strings.Contains(w.Body.String(), "Uid:") {
		t.Errorf("a link: %d %s", w.Code, w.Body)
	}
}

// TestListSkills: what was deleted is in the list too.
func TestListSkills(t *testing.T) {
	_, h, ask := skilled(t)
	if text := ask(http.MethodGet, "skills", "").Body.String(); strings.Count(text, `"name":`) != 2 || strings.Count(text, `"deleted":true`) < 1 || !strings.Contains(text, `"count":1`) {
		t.Error(text)
	}
	h.err = errors.New("no disk")
	if text := ask(http.MethodGet, "skills", "").Body.String(); strings.Count(text, `"name":`) != 1 {
		t.Error(text)
	}
}

// TestRestoreSkill: only a version that is kept as it was is restored.
func TestRestoreSkill(t *testing.T) {
	dir, h, ask := skilled(t)
	source := func() string {
		text, err := os.ReadFile(filepath.Join(dir, "one.ts"))
		testkit.Must(t, err)
		return string(text)
	}
	for path, want := range map[string]int{
		"skills/one/versions/2/restore": http.StatusConflict, "skills/one/versions/9/restore": http.StatusNotFound,
		"skills/one/versions/x/restore": http.StatusNotFound, "skills/other/versions/1/restore": http.StatusConflict,
	} {
		if w := ask(http.MethodPost, path, ""); w.Code != want || source() != "new" || len(h.stored) > 0 {
			t.Errorf("%s: %d, want %d; %q, %q\n%s", path, w.Code, want, source(), h.stored, w.Body)
		}
	}
	h.err = errors.New("no disk")
	if w := ask(http.MethodPost, "skills/one/versions/1/restore", ""); w.Code != http.StatusBadGateway || source() != "new" {
		t.Errorf("without a history: %d %s", w.Code, w.Body)
	}
	h.err = nil
	if w := ask(http.MethodPost, "skills/one/versions/1/restore", ""); w.Code != http.StatusOK || source() != "old" || !slices.Equal(h.stored, []string{"one console false old"}) {
		t.Errorf("%d, %q, %q", w.Code, source(), h.stored)
	}
}

// TestPinSkill: a skill is pinned to the source that was shown, and a pinned one is not changed.
func TestPinSkill(t *testing.T) {
	dir, h, ask := skilled(t)
	sum := fmt.Sprintf(`{"sum": %q}`, skill.SourceSum("new"))
	for i, c := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPost, "skills/one/pin", `{"sum": "another"}`, http.StatusConflict},
		{http.MethodPost, "skills/one/pin", `{`, http.StatusBadRequest},
		{http.MethodPost, "skills/other/pin", sum, http.StatusNotFound},
		{http.MethodPost, "skills/one/pin", sum, http.StatusOK},
		{http.MethodDelete, "skills/one", "", http.StatusConflict},
		{http.MethodPost, "skills/one/versions/1/restore", "", http.StatusConflict},
		{http.MethodDelete, "skills/one/pin", "", http.StatusOK},
		{http.MethodDelete, "skills/one", "", http.StatusOK},
		{http.MethodDelete, "skills/one", "", http.StatusNotFound},
	} {
		if w := ask(c.method, c.path, c.body); w.Code != c.want {
			t.Errorf("%d: %s %s: %d, want %d\n%s", i, c.method, c.path, w.Code, c.want, w.Body)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "one.ts")); err == nil || !slices.Equal(h.stored, []string{"one console true "}) {
		t.Errorf("%v, %q", err, h.stored)
	}
}
