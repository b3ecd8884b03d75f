package catalog

// FieldNames are the fields of the objects in config.json, as the documentation has them under these headings, and of
// each kind of credential that is obtained.
func FieldNames() (headings, kinds map[string][]string) {
	headings = map[string][]string{
		"Fields": topFields().names(), "Credentials": credentialFields().names(), "The mcp field of config.json": serverFields().names(),
		"Operations": operationsFields().names(),
	}
	kinds = map[string][]string{}
	for _, k := range mintKinds() {
		kinds[k.name] = k.names()
	}
	return headings, kinds
}
