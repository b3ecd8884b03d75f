package transport

// Deleted is how many deleted sessions are remembered.
func (h *Handler) Deleted() int {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	return len(h.book.deleted)
}
