package upstream

import (
	"encoding/json"
	"maps"
	"net/http"
	"sync"
)

// items are objects that can be read and changed, by their paths. One that nobody has written is open.
type items struct {
	mu  sync.Mutex
	all map[string]map[string]any
}

// ServeHTTP implements http.Handler.
func (s *items) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]map[string]any{}
	}
	item := s.all[r.URL.Path]
	if item == nil {
		item = map[string]any{"state": "open", "labels": []string{"bug"}, "forged": "undefined", "planned": 1}
	}
	w.Header().Set("CodeForge-Planned", "1") // which only the proxy may say
	switch r.Method {
	case http.MethodPut, http.MethodPatch:
		var in map[string]any
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		item = maps.Clone(item)
		maps.Copy(item, in)
		s.all[r.URL.Path] = item
	case http.MethodDelete:
		delete(s.all, r.URL.Path)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(item) // the client has gone
}
