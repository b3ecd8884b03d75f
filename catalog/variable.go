package catalog

import (
	"slices"
	"strings"
)

// minVariable is the length of the shortest name of a variable, in bytes. The longest has maxName.
const minVariable = 2

// Variables that Deno, Python, their libraries or the C library read as settings. Code gets no token name in them: a
// name there would switch something on, or hide the certificates of the proxy.
var (
	settingNames = []string{
		"PATH", "HOME", "SHELL", "USER", "LOGNAME", "PWD", "TMP", "TEMP", "TMPDIR", "TZ", "TZDIR", "LANG", "LANGUAGE", "TERM",
		"NO_COLOR", "FORCE_COLOR", "DEBUG", "CI", "IFS", "ENV", "BASH_ENV", "NETRC", "HOSTALIASES", "LOCALDOMAIN",
		"RES_OPTIONS", "NLSPATH", "SSLKEYLOGFILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE",
		"HTTPLIB2_CA_CERTS", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "GIT_SSL_CAINFO", "LOCPATH",
	}
	settingPrefixes = []string{
		"CODEFORGE_", "DENO_", "NODE_", "NPM_CONFIG_", "PYTHON", "LD_", "LC_", "GLIBC_", "MALLOC_", "GCONV_", "OPENSSL_",
		"SSL_CERT_", "XDG_",
	}
	settingSuffixes = []string{"_PROXY", "_BASE_URL", "_API_BASE"}
)

// isSettingName reports whether an interpreter or a library reads the variable as a setting.
func isSettingName(name string) bool {
	return slices.Contains(settingNames, name) ||
		slices.ContainsFunc(settingPrefixes, func(s string) bool { return strings.HasPrefix(name, s) }) ||
		slices.ContainsFunc(settingSuffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// readVariable returns a credential's second variable. It returns "" without one, or after it reports a mistake.
func (v *configValidator) readVariable(raw rawCredential) string {
	if raw.variable == nil {
		return ""
	}
	name, field := *raw.variable, raw.fieldPath()+".variable"
	switch {
	case name == raw.name:
		v.AddError(field, "the token name itself, which is a variable already", "it left out")
	case len(name) < minVariable || len(name) > maxName || name[0] < 'A' || name[0] > 'Z' ||
		strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "":
		v.AddError(field, "not the name of a variable", "2 to 64 of A-Z, 0-9 and _, starting with a letter")
	case isSettingName(name):
		v.AddError(field, "a variable that interpreters or libraries read as a setting", "the variable of a key")
	default:
		return name
	}
	return ""
}

// checkVariables rejects a variable that stands for two credentials of an API.
func (v *configValidator) checkVariables(list []Credential) {
	owner := map[string]string{}
	for _, c := range list {
		owner[c.Name] = c.Name
	}
	for _, c := range list {
		switch first, taken := owner[c.Variable]; {
		case c.Variable == "":
		case taken:
			v.AddError("credentials."+c.Name+".variable", "a variable that "+first+" has too", "another variable")
		default:
			owner[c.Variable] = c.Name
		}
	}
}

// warnSharedVariables warns of a variable that stands for credentials of two APIs. It is not an error, because a tenant
// or a narrowed run may have only one of the APIs.
func (l *loadState) warnSharedVariables() {
	owner := map[string]*API{}
	for _, c := range l.listCredentials() {
		owner[c.Name] = c.api
	}
	for _, c := range l.listCredentials() {
		switch first := owner[c.Variable]; {
		case c.Variable == "":
		case first == nil:
			owner[c.Variable] = c.api
		case first != c.api:
			l.addWarning(c.api, "credentials."+c.Name+".variable",
				"a variable that apis/"+first.Name+" has too: a run that may use both does not get this one",
				"another variable, or runs narrowed to one of the APIs")
		}
	}
}

// Variables returns the names of the variables in which code finds the token name: the name itself, and Variable.
func (c Credential) Variables() (names []string) {
	for _, name := range []string{c.Name, c.Variable} {
		if name != "" && !isSettingName(name) {
			names = append(names, name)
		}
	}
	return names
}
