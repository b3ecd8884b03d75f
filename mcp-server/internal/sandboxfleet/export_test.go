package sandboxfleet

// CountPods returns the number of pods that may get leases, and the number of leases.
func (f *Fleet) CountPods() (pods, leases int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pods {
		if p.isUsable() {
			pods++
		}
		leases += p.own
	}
	return pods, leases
}
