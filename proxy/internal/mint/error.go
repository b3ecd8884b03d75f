package mint

import (
	"cmp"
	"errors"
	"slices"

	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// Error is the reason why a credential could not be obtained. It contains no text that a server chose.
type Error struct {
	// Name is the token name. It is empty inside this package until asError sets it.
	Name string
	// Code is the code of the refusal: policy.CodeLoginNeeded, CodeTokenUnavailable, CodeSecretUnavailable or
	// CodeNotSignable.
	Code string
	// Detail is an error code of RFC 6749 or a related RFC, or a detail of this package.
	Detail string
}

// Error implements error.
func (e *Error) Error() string { return e.Name + ": " + e.Code + ": " + e.Detail }

func newUnavailable(detail string) error {
	return &Error{Code: policy.CodeTokenUnavailable, Detail: detail}
}

func newLoginNeeded(detail string) error { return &Error{Code: policy.CodeLoginNeeded, Detail: detail} }

// The details of this package.
const (
	detailNoLogin     = "no_login"
	detailUnreachable = "unreachable"
	detailRedirect    = "redirected"
	detailTooLarge    = "answer_too_large"
	detailNotJSON     = "answer_is_not_json"
	detailNoToken     = "answer_has_no_token"
	detailLifetime    = "answer_has_no_usable_lifetime"
	detailUnusable    = "token_is_unusable"
	detailPlain       = "token_does_not_look_random"
	detailEcho        = "token_contains_a_secret"
	detailStatus      = "unexpected_status"
	detailStorage     = "cannot_be_stored"
	detailTooMany     = "renewed_too_often"
	detailChanged     = "configuration_changed"
	detailOther       = "other_error"
	detailIdentity    = "server_does_not_name_itself"
	detailNoServer    = "no_authorization_server"
	detailNoClient    = "no_client_and_no_registration"
	detailKind        = "kind_is_not_obtained"
	detailNotSupplied = "not_supplied"
)

// shownCodes are the error codes that are passed on. Any other code is replaced: a server that echoes a secret may do
// so in any field.
var shownCodes = []string{
	"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
	"invalid_scope", "access_denied", "server_error", "temporarily_unavailable", "unsupported_response_type",
	"authorization_pending", "slow_down", "expired_token", "invalid_target", "interaction_required", "login_required",
	"consent_required", "invalid_redirect_uri", "invalid_client_metadata", "bad_refresh_token",
	"incorrect_client_credentials", "redirect_uri_mismatch", "bad_verification_code", "invalid_refresh_token",
	"token_expired", "token_revoked", "invalid_code", "device_flow_disabled", "incorrect_device_code",
}

// endedCodes are the error codes that mean the end of a login.
var endedCodes = []string{
	"invalid_grant", "bad_refresh_token", "invalid_refresh_token", "interaction_required", "login_required",
	"consent_required", "token_expired", "token_revoked", "expired_token",
}

func filterCode(code string) string {
	// A server could put a secret into the code.
	if slices.Contains(shownCodes, code) {
		return code
	}
	return detailOther
}

// asError turns an error into an Error about a credential.
func asError(name string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Name: cmp.Or(e.Name, name), Code: e.Code, Detail: e.Detail}
	}
	return &Error{Name: name, Code: policy.CodeTokenUnavailable, Detail: detailUnreachable}
}
