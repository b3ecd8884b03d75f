package shape

import (
	"hash/maphash"
	"sync"
)

const (
	// maxPlaces is how many places a Memory knows; who knows more forgets one.
	maxPlaces = 400
)

// Memory keeps the shapes of the answers of many places, e.g. tools or operations, in memory alone. Its zero value is
// empty. It is safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	seed   maphash.Seed
	places map[string]*learned
}

// learned is what is known of one place.
type learned struct {
	shape    Shape
	examples int
	last     uint64 // the question of the last example
}

// Add adds an example: the shape of a place's answer to a question, such as the arguments of a call. Nil means that it
// had none.
func (m *Memory) Add(place string, question []byte, s *Shape) {
	if s == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.places == nil {
		m.places, m.seed = map[string]*learned{}, maphash.MakeSeed()
	}
	asked := maphash.Bytes(m.seed, question)
	l := m.places[place]
	if l == nil {
		for other := range m.places {
			if len(m.places) < maxPlaces {
				break
			}
			delete(m.places, other)
		}
		l = &learned{}
		m.places[place] = l
	}
	again := l.examples > 0 && l.last == asked
	l.shape.Join(s, again)
	l.last = asked
	l.examples++
}

// Answer is what the answers of a place look like, as a type of TypeScript; empty if there was none.
func (m *Memory) Answer(place string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.places[place]; l != nil {
		return l.shape.String()
	}
	return ""
}
