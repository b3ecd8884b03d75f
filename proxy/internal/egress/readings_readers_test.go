package egress_test

// readers lists the readers of each kind. Each must find a credential somewhere in the corpus; otherwise it reads
// nothing at all.
var readers = map[string][]string{
	KindHead: {
		"cherrypy", "django", "go", "http.server", "node", "php", "rack", "werkzeug",
	},
	KindQuery: {
		"bottle", "cherrypy", "django", "go", "node-querystring", "node-url", "perl-cgi", "php", "python", "qs",
		"qs-dots", "rack", "webob", "werkzeug",
	},
	KindForm: {
		"body-parser", "body-parser-extended", "bottle", "busboy", "cherrypy", "django", "formidable", "go",
		"node-url", "perl-cgi", "php", "php-parse_str", "python", "qs-dots", "rack", "starlette", "tornado", "webob",
		"werkzeug",
	},
	KindMultipart: {
		"bottle", "busboy", "cherrypy", "django", "formidable", "go", "go-parts", "multer", "perl-cgi", "php",
		"python-email", "rack", "starlette", "tornado", "webob", "werkzeug",
	},
	KindJSON: {
		"body-parser", "bottle", "cherrypy", "gjson", "go-json", "json5", "jsoniter", "node-json", "node-ndjson",
		"perl-json", "perl-json-relaxed", "php-json", "python-json", "ruby-json", "ruby-json-nan", "webob", "werkzeug",
	},
	KindUntyped: {
		"gjson", "go-json", "json5", "jsoniter", "node-json", "perl-json", "perl-json-relaxed", "php-json",
		"python-json", "ruby-json", "ruby-json-nan",
	},
}

// misled are the readers, by group of the corpus, that the corpus misleads if a proxy swaps without checks.
var misled = map[string][]string{
	"json":   {"json5", "ruby-json", "perl-json-relaxed", "gjson", "rack", "perl-cgi", "php-json", "php-parse_str"},
	"deep":   {"json5", "ruby-json", "php", "webob"},
	"form":   {"php", "rack", "perl-cgi", "django", "werkzeug", "body-parser", "cherrypy"},
	"query":  {"php", "rack", "perl-cgi", "django"},
	"header": {"php", "rack", "werkzeug", "cherrypy"},
	"multipart": {
		"busboy", "formidable", "multer", "php", "rack", "django", "werkzeug", "tornado", "webob", "bottle",
		"starlette", "cherrypy", "perl-cgi", "go", "python-email",
	},
	"override": {"php", "rack", "django", "cherrypy", "json5", "body-parser", "werkzeug", "go", "busboy", "formidable"},
}

// Blind lists the readers that found no credential although they should have, and those that no case has misled. found
// has the kinds and names of readers that found a credential in its place. fooled has the groups and names of misled
// readers.
func Blind(found, fooled map[[2]string]bool) []string {
	var out []string
	for kind, names := range readers {
		for _, name := range names {
			if !found[[2]string{kind, name}] {
				out = append(out, name+" finds no credential ("+kind+")")
			}
		}
	}
	for group, names := range misled {
		for _, name := range names {
			if !fooled[[2]string{group, name}] {
				out = append(out, name+" is never misled ("+group+")")
			}
		}
	}
	return out
}
