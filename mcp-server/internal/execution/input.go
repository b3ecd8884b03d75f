package execution

import (
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// InputStore keeps inputs in memory until the runs take them. The ID of an input is a secret of its sender. The zero
// InputStore is empty.
type InputStore struct {
	mu   sync.Mutex
	held map[string]*sandboxapi.Input
}

const (
	// maxInputs bounds the inputs that wait for their runs.
	maxInputs = 4
	// inputTime is how long an input waits for its run.
	inputTime = time.Minute
)

// Add stores an input and returns its ID.
func (s *InputStore) Add(i *sandboxapi.Input) (id string, err error) {
	if err := i.Validate(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) >= maxInputs {
		return "", errors.New("the inputs of other runs are waiting; try again in a moment")
	}
	if s.held == nil {
		s.held = map[string]*sandboxapi.Input{}
	}
	id = rand.Text()
	s.held[id] = i
	time.AfterFunc(inputTime, func() { s.Take(id) })
	return id, nil
}

// Take removes an input and returns it, or nil.
func (s *InputStore) Take(id string) *sandboxapi.Input {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.held[id]
	delete(s.held, id)
	return i
}
