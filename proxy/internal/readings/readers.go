package readings

// Readers are all readers that there are, by the kind of what they read, without those of missing peers.
func Readers(missing []string) []string { return nil }

// Misled are the readers that a group of the corpus misleads when names are swapped without a look.
func Misled(missing []string) []string { return nil }
