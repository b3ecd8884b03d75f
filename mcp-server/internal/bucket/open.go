package bucket

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"gopkg.in/ini.v1"
)

const (
	scheme = "s3://"
	aws    = "s3.amazonaws.com"
)

// Open is the objects at s3://BUCKET/PREFIX. Nothing is requested yet. The rest is in the variables of AWS's tools:
//
//	AWS_ENDPOINT_URL_S3           URL of the server; also AWS_ENDPOINT_URL. Empty: AWS's
//	AWS_REGION                    region of the bucket; also AWS_DEFAULT_REGION. Empty: the server is asked
//	AWS_CA_BUNDLE                 PEM of further authorities for the server
//	AWS_SHARED_CREDENTIALS_FILE   file with the key, read again when it is a minute old
//	AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN   the key, instead
//
// Without a key it is that of the pod's or machine's role, in AWS.
func Open(address string, getenv func(string) string) (*Bucket, error) {
	rest, ok := strings.CutPrefix(address, scheme)
	name, prefix, _ := strings.Cut(strings.TrimRight(rest, "/"), "/")
	if !ok || name == "" || strings.ContainsAny(rest, "?#@ ") || strings.Contains("/"+prefix+"/", "//") && prefix != "" {
		const want = "want s3://BUCKET or s3://BUCKET/PREFIX"
		if strings.ContainsAny(address, "?#@") { // which may have a key behind or before it
			return nil, errors.New("the address has more than a bucket and a prefix: " + want)
		}
		return nil, fmt.Errorf("%.80q: "+want, address)
	}
	first := func(names ...string) string {
		for _, n := range names {
			if v := strings.TrimSpace(getenv(n)); v != "" {
				return v
			}
		}
		return ""
	}
	server, err := endpoint(first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
	if err != nil {
		return nil, err
	}
	key := first("AWS_ACCESS_KEY_ID", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE")
	if key == "" && server.Host != aws {
		return nil, errors.New("AWS_SHARED_CREDENTIALS_FILE: want a file with aws_access_key_id and aws_secret_access_key " +
			"under [default]")
	}
	secure := server.Scheme == "https"
	transport, err := connections(secure, getenv("AWS_CA_BUNDLE"))
	if err != nil {
		return nil, err
	}
	client, err := minio.New(server.Host, &minio.Options{
		Creds: keys(getenv), Secure: secure, Region: first("AWS_REGION", "AWS_DEFAULT_REGION"),
		Transport: removals{transport}, MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	if prefix != "" {
		prefix += "/"
	}
	return &Bucket{client: client, name: name, prefix: prefix}, nil
}

func endpoint(text string) (*url.URL, error) {
	if text == "" {
		return &url.URL{Scheme: "https", Host: aws}, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errors.New("AWS_ENDPOINT_URL_S3: want a URL like https://minio.example.com:9000, without a path")
	}
	return u, nil
}

// connections are those to the server.
func connections(secure bool, authorities string) (*http.Transport, error) {
	transport, err := minio.DefaultTransport(secure)
	if err != nil || authorities == "" || !secure {
		return transport, err
	}
	pem, err := os.ReadFile(authorities)
	if err != nil {
		return nil, fmt.Errorf("AWS_CA_BUNDLE: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("AWS_CA_BUNDLE: %s has no certificate", authorities)
	}
	transport.TLSClientConfig.RootCAs = roots
	return transport, nil
}

// keys are where the access key comes from.
func keys(getenv func(string) string) *credentials.Credentials {
	if id := getenv("AWS_ACCESS_KEY_ID"); id != "" {
		return credentials.NewStaticV4(id, getenv("AWS_SECRET_ACCESS_KEY"), getenv("AWS_SESSION_TOKEN"))
	}
	if path := getenv("AWS_SHARED_CREDENTIALS_FILE"); path != "" {
		return credentials.New(&keyFile{path: path})
	}
	return credentials.NewIAM("")
}

// keyTime is how long a key of a file is used before the file is read again.
const keyTime = time.Minute

var errNoKey = errors.New("no access key")

// keyFile is a file as AWS's tools have it. Of what it can say, programs to start among it, only the key counts.
type keyFile struct {
	credentials.Expiry
	path string
}

// RetrieveWithCredContext implements credentials.Provider.
func (k *keyFile) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return k.Retrieve()
}

// Retrieve implements credentials.Provider.
func (k *keyFile) Retrieve() (credentials.Value, error) {
	data, err := os.ReadFile(k.path)
	if err != nil {
		return credentials.Value{}, fmt.Errorf("%w: AWS_SHARED_CREDENTIALS_FILE: %w", errNoKey, err)
	}
	file, err := ini.Load(data)
	if err != nil { // which shows a line
		return credentials.Value{}, fmt.Errorf("%w: AWS_SHARED_CREDENTIALS_FILE: %s has a line that is no KEY = VALUE",
			errNoKey, k.path)
	}
	s := file.Section("default")
	v := credentials.Value{
		AccessKeyID: s.Key("aws_access_key_id").String(), SecretAccessKey: s.Key("aws_secret_access_key").String(),
		SessionToken: s.Key("aws_session_token").String(), SignerType: credentials.SignatureV4,
	}
	if v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return credentials.Value{}, fmt.Errorf("%w: AWS_SHARED_CREDENTIALS_FILE: want aws_access_key_id and "+
			"aws_secret_access_key under [default] in %s", errNoKey, k.path)
	}
	k.SetExpiration(time.Now().Add(keyTime), time.Nanosecond)
	return v, nil
}
