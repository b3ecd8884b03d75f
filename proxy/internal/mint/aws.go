package mint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/sigv4"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

// sessionName is the name of the session in AWS's logs.
const sessionName = "codeforge"

// assumeRole gets temporary keys of a role. In the grant, Access is the secret access key, and Inner are the session
// token and the key id.
func (r *requester) assumeRole(ctx context.Context, a *catalog.AWS, now func() time.Time) (grant, error) {
	suffix := "amazonaws.com"
	// The Chinese partition has other host names.
	if strings.HasPrefix(a.RoleARN, "arn:aws-cn:") {
		suffix += ".cn"
	}
	form := url.Values{"Action": {"AssumeRole"}, "Version": {"2011-06-15"}, "RoleArn": {a.RoleARN},
		"RoleSessionName": {sessionName}}
	if a.ExternalID != "" {
		form.Set("ExternalId", a.ExternalID)
	}
	body := form.Encode()
	to := "https://sts." + a.Region + "." + suffix + "/"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		return grant{}, newUnavailable(detailUnreachable)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	sum := sha256.Sum256([]byte(body))
	if err := sigv4.SignRequest(req, sigv4.Scope{Service: "sts", Region: a.Region}, baseKeys(a),
		hex.EncodeToString(sum[:]), now()); err != nil {
		return grant{}, newUnavailable(detailKey)
	}
	answer, err := r.sendForAnswer(req)
	if err != nil {
		return grant{}, err
	}
	return parseRole(answer, now())
}

// parseRole reads an answer of STS to AssumeRole.
func parseRole(answer *Answer, now time.Time) (grant, error) {
	switch answer.Status {
	case http.StatusOK:
	case http.StatusForbidden:
		return grant{}, newUnavailable("access_denied")
	default:
		return grant{}, newUnavailable(detailStatus)
	}
	var role struct {
		Keys struct {
			ID      string    `xml:"AccessKeyId"`
			Secret  string    `xml:"SecretAccessKey"`
			Token   string    `xml:"SessionToken"`
			Expires time.Time `xml:"Expiration"`
		} `xml:"AssumeRoleResult>Credentials"`
	}
	switch err := xml.Unmarshal(answer.Body, &role); {
	case err != nil:
		return grant{}, newUnavailable(detailNotXML)
	case role.Keys.ID == "" || role.Keys.Secret == "" || role.Keys.Token == "":
		return grant{}, newUnavailable(detailNoToken)
	// The clock of this machine may be wrong, or the answer is old.
	case !role.Keys.Expires.After(now):
		return grant{}, newUnavailable(detailLifetime)
	}
	return grant{
		Access: role.Keys.Secret, Inner: []string{role.Keys.Token, role.Keys.ID}, Life: role.Keys.Expires.Sub(now),
	}, nil
}

const detailNotXML = "answer_is_not_xml"

func baseKeys(a *catalog.AWS) sigv4.Keys {
	return sigv4.Keys{ID: a.AccessKeyID, Secret: a.SecretAccessKey.Reveal(), Token: a.SessionToken.Reveal()}
}

// obtainKeys returns the keys that sign a request now.
func (m *Minter) obtainKeys(ctx context.Context, c catalog.Credential, how *catalog.AWS) (sigv4.Keys, error) {
	if how.RoleARN == "" {
		return baseKeys(how), nil
	}
	if _, err := m.obtainCurrent(ctx, c); err != nil {
		return sigv4.Keys{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.findState(c)
	if err != nil {
		return sigv4.Keys{}, err
	}
	// The secret of obtainCurrent is ignored: a renewal since then would combine it with the token of another key.
	const inner = 2
	if len(s.kept.Inner) != inner {
		return sigv4.Keys{}, &Error{Name: c.Name, Code: policy.CodeTokenUnavailable, Detail: detailNoToken}
	}
	return sigv4.Keys{ID: s.kept.Inner[1], Secret: s.kept.Access, Token: s.kept.Inner[0]}, nil
}

// maxSigned bounds the bytes of a body that are buffered for the signature if the server also accepts an unsigned body.
// maxOther is the bound for other servers.
const maxSigned, maxOther = 1 << 20, 8 << 20

// awsScope returns the scope for which a request may be signed. The host decides, within the limits of config.json.
func awsScope(a *catalog.AWS, host string) (sigv4.Scope, bool) {
	service, region, ok := catalog.AWSHost(host)
	switch {
	// The host is not AWS's: only the configuration can name the service.
	case !ok && len(a.Services) == 1:
		return sigv4.Scope{Service: a.Services[0], Region: a.Region}, true
	case !ok:
		return sigv4.Scope{}, false
	// A global endpoint is in one region.
	case region == "":
		region = "us-east-1"
		if strings.HasSuffix(host, ".cn") {
			region = "cn-north-1"
		}
	case region != a.Region:
		return sigv4.Scope{}, false
	}
	return sigv4.Scope{Service: service, Region: region}, len(a.Services) == 0 || slices.Contains(a.Services, service)
}

// signAWS signs a request. It reads the body, or the beginning of the body.
func signAWS(req *http.Request, host string, a *catalog.AWS, k sigv4.Keys, now time.Time) error {
	scope, ok := awsScope(a, host)
	if !ok {
		return errScope
	}
	// S3 shows no signature, and S3 clients read objects in ranges.
	if scope.Service != "s3" || k.Token != "" {
		swap.DropRange(req)
	}
	// Before the body is read: a request that cannot be signed needs no memory.
	if err := sigv4.CheckSignable(req); err != nil {
		return err
	}
	if scope.Service == "s3" && !isCopyWithin(req.Header, host) {
		return errScope
	}
	// The client has decided not to sign the body, so it need not be buffered.
	given := req.Header.Get(sigv4.PayloadHeader)
	if given == sigv4.Unsigned || given == sigv4.UnsignedTrailer {
		return sigv4.SignRequest(req, scope, k, given, now)
	}
	// S3 also accepts an unsigned body, so a long one need not be buffered there.
	limit := maxOther
	if scope.Service == "s3" {
		limit = maxSigned
	}
	body, whole, err := bufferBody(req, limit)
	switch {
	case err != nil:
		return err
	case whole:
		sum := sha256.Sum256(body)
		return sigv4.SignRequest(req, scope, k, hex.EncodeToString(sum[:]), now)
	// The client gave the hash of the body, and the server checks it against the body.
	case isHash(given):
		return sigv4.SignRequest(req, scope, k, given, now)
	case scope.Service == "s3":
		return sigv4.SignRequest(req, scope, k, sigv4.Unsigned, now)
	}
	return errTooLong
}

// isCopyWithin reports whether the source of an S3 copy is in the bucket of the host, if the host names a bucket. The
// key may be valid for other buckets, but those are other hosts.
func isCopyWithin(h http.Header, host string) bool {
	_, _, aws := catalog.AWSHost(host)
	at := max(strings.LastIndex(host, ".s3."), strings.LastIndex(host, ".s3-"))
	for _, source := range h["X-Amz-Copy-Source"] {
		path, err := url.PathUnescape(source)
		if aws && at > 0 && (err != nil || !strings.HasPrefix(strings.TrimPrefix(path, "/"), host[:at]+"/")) {
			return false
		}
	}
	return true
}

func isHash(s string) bool {
	return len(s) == hex.EncodedLen(sha256.Size) && strings.Trim(s, "0123456789abcdef") == ""
}

// bufferBody reads at most limit bytes of the body. whole is false if there are more. The request's body is complete in
// both cases.
func bufferBody(req *http.Request, limit int) (body []byte, whole bool, err error) {
	if req.ContentLength > int64(limit) {
		return nil, false, nil
	}
	if body, whole, err = coding.PeekBody(req, limit, limit+1); !whole {
		return nil, false, err
	}
	req.ContentLength = int64(len(body))
	return body, true, nil
}
