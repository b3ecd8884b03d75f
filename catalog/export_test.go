package catalog

// FieldNames are the fields of the objects in config.json, as the documentation has them under these headings, and of
// each kind of credential that is obtained.
func FieldNames() (headings, kinds map[string][]string) {
	headings = map[string][]string{
		"Fields": topFields().fieldNames(), "Credentials": credentialFields().fieldNames(), "The mcp field of config.json": serverFields().fieldNames(),
		"Operations": operationsFields().fieldNames(),
	}
	kinds = map[string][]string{}
	for _, k := range mintKinds() {
		kinds[k.name] = k.fieldNames()
	}
	return headings, kinds
}

// InnerNames returns the names of the fields of objects inside others.
func InnerNames() map[string][]string {
	return map[string][]string{
		"limits": limitsFields().fieldNames(), "sum": sumFields().fieldNames(), "rule": ruleFields().fieldNames(),
		"condition": conditionFields().fieldNames(), "tools": toolsFields().fieldNames(), "client_cert": clientCertFields().fieldNames(),
		"secret": sourceFields(func(s *secretSource) *secretSource { return s }).fieldNames(),
	}
}

// ProviderNames returns the presets of "oauth2".
var ProviderNames = providerNames
