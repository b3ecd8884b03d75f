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

	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"gopkg.in/ini.v1"
)

// Open is the objects at an address of SKILLS_BUCKET or HISTORY_BUCKET, with the BUCKET_ settings. Nothing is requested
// yet. The file of the key is read again when it is a minute old. Without one, the key is that of the pod's role.
func Open(address *url.URL, s settings.Settings) (*Bucket, error) {
	server := s.BucketEndpoint
	if server == nil {
		server = &url.URL{Scheme: "https", Host: "s3.amazonaws.com"}
	}
	secure := server.Scheme == "https"
	transport, err := connections(secure, s.BucketCAFile)
	if err != nil {
		return nil, err
	}
	key := credentials.NewIAM("")
	if s.BucketCredentialsFile != "" {
		key = credentials.New(&keyFile{path: s.BucketCredentialsFile})
	}
	client, err := minio.New(server.Host, &minio.Options{
		Creds: key, Secure: secure, Region: s.BucketRegion, Transport: removals{transport}, MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	prefix := strings.TrimPrefix(address.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &Bucket{client: client, name: address.Host, prefix: prefix}, nil
}

// connections are those to the server.
func connections(secure bool, authorities string) (*http.Transport, error) {
	transport, err := minio.DefaultTransport(secure)
	if err != nil || authorities == "" || !secure {
		return transport, err
	}
	pem, err := os.ReadFile(authorities)
	if err != nil {
		return nil, fmt.Errorf("BUCKET_CA_FILE: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("BUCKET_CA_FILE: %s has no certificate", authorities)
	}
	transport.TLSClientConfig.RootCAs = roots
	return transport, nil
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
		return credentials.Value{}, fmt.Errorf("%w: BUCKET_CREDENTIALS_FILE: %w", errNoKey, err)
	}
	file, err := ini.Load(data)
	if err != nil { // which shows a line
		return credentials.Value{}, fmt.Errorf("%w: BUCKET_CREDENTIALS_FILE: %s has a line that is no KEY = VALUE",
			errNoKey, k.path)
	}
	s := file.Section("default")
	v := credentials.Value{
		AccessKeyID: s.Key("aws_access_key_id").String(), SecretAccessKey: s.Key("aws_secret_access_key").String(),
		SessionToken: s.Key("aws_session_token").String(), SignerType: credentials.SignatureV4,
	}
	if v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return credentials.Value{}, fmt.Errorf("%w: BUCKET_CREDENTIALS_FILE: want aws_access_key_id and "+
			"aws_secret_access_key under [default] in %s", errNoKey, k.path)
	}
	k.SetExpiration(time.Now().Add(keyTime), time.Nanosecond)
	return v, nil
}
