package swap

// Ambiguity is the error for a request that servers could read in different ways at a place where a credential would
// go. The proxy refuses such a request. If a streamed body turns out to be ambiguous, reading the body fails with this
// error.
type Ambiguity struct {
	// Reason is a constant sentence.
	Reason string
}

// Error implements error.
func (a *Ambiguity) Error() string { return "ambiguous request: " + a.Reason }

// The reasons. The refusal that the model reads contains such a sentence.
var (
	errTypes   = &Ambiguity{"The request has more than one Content-Type, or one that is malformed."}
	errCharset = &Ambiguity{"The Content-Type has a charset other than UTF-8."}
	errUntyped = &Ambiguity{"The body has no Content-Type, so that some servers read it as a form."}
	errJSON    = &Ambiguity{"The body is not strict JSON (RFC 8259), which has no comments, single quotes, unquoted " +
		"keys, trailing commas, NaN, byte order mark or invalid UTF-8."}
	errJSONMore  = &Ambiguity{"There is more than one JSON value in the body."}
	errJSONLines = &Ambiguity{"The body's type means one JSON value on each line, and the body is not so."}
	errJSONDeep  = &Ambiguity{"The body's JSON is nested more than 64 levels deep."}
	errJSONKeys  = &Ambiguity{"A declared key occurs twice in one JSON object, perhaps in another case."}
	errJSONRef   = &Ambiguity{"The body's JSON has a key $ref, by which some servers repeat a field in another place."}
	errForm      = &Ambiguity{"The form has characters that are not percent-encoded, " +
		"or a percent sign without two digits."}
	errFormKeys   = &Ambiguity{"A declared field occurs twice in the form, perhaps in another case or with brackets."}
	errFormSet    = &Ambiguity{"The form or query has a _charset_ field."}
	errQueryKeys  = &Ambiguity{"A declared parameter occurs twice in the query, perhaps in another case or with brackets."}
	errPath       = &Ambiguity{"The path has dot segments, backslashes or control characters."}
	errPathQuery  = &Ambiguity{"The path has ?, & or ;, perhaps escaped, before the token name."}
	errTwice      = &Ambiguity{"A header that has a token name occurs twice."}
	errParameters = &Ambiguity{"The parameters of Authorization are not key=value or key=\"value\", " +
		"separated by commas, each key once."}
	errCookies = &Ambiguity{"The Cookie header is not name=value, separated by semicolons, each name once, without " +
		"quotes, commas and spaces in the values."}
	errCookieValue = &Ambiguity{"The credential has characters that cannot be in a cookie."}
	errBasic       = &Ambiguity{"The user and password of Basic contain another colon, or control characters."}
)
