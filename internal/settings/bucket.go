package settings

import (
	"net/url"
	"strings"
)

// halfBucket is what is missing of the settings of buckets. In a pod the key may be that of a role in AWS.
func (s Settings) halfBucket(pod bool) []Mistake {
	const unset = "not set"
	switch some := s.SkillsBucket != nil || s.HistoryBucket != nil; {
	case some && s.BucketCredentialsFile == "" && (!pod || s.BucketEndpoint != nil):
		return []Mistake{{"BUCKET_CREDENTIALS_FILE", unset, "with SKILLS_BUCKET or HISTORY_BUCKET a file of three lines, " +
			"[default], aws_access_key_id = ID and aws_secret_access_key = SECRET"}}
	case !some && (s.BucketEndpoint != nil || s.BucketRegion+s.BucketCredentialsFile+s.BucketCAFile != ""):
		return []Mistake{{"SKILLS_BUCKET", unset, "s3://BUCKET/PREFIX, here or in HISTORY_BUCKET, or no BUCKET_ setting"}}
	}
	return nil
}

// bucket reads the address of a prefix in a bucket.
func bucket(t string, to **url.URL) string {
	if t == "" {
		return ""
	}
	u, err := url.Parse(strings.TrimRight(t, "/"))
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.Port() != "" || u.User != nil ||
		strings.ContainsAny(t, "?#% ") || strings.Contains(u.Path, "//") {
		return "s3://BUCKET or s3://BUCKET/PREFIX"
	}
	*to = u
	return ""
}

// endpoint reads the address of the server of buckets.
func endpoint(t string, to **url.URL) string {
	if t == "" {
		return ""
	}
	u, err := url.Parse(strings.TrimRight(t, "/"))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Path != "" ||
		strings.ContainsAny(t, "?#") {
		return "a URL like https://minio.example.com:9000, without a path"
	}
	*to = u
	return ""
}

func region(t string, to *string) string {
	if strings.Trim(t, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "the region of the bucket, e.g. eu-central-1 or auto"
	}
	*to = t
	return ""
}
