// Package bucket keeps small objects under one prefix of a bucket of S3, or of a server like it.
//
// Contract: a change of an object names the version that it changes, so of two at a time one gets ErrConflict, and has
// changed nothing. No call takes longer than callTime. A Put whose connection broke is made once more.
//
// Threat: others write to the bucket. Names, sizes and the number of objects are theirs: whoever calls bounds them.
package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// callTime is the longest that one request may take.
const callTime = 10 * time.Second

// The errors that callers distinguish.
var (
	ErrNotFound = errors.New("no such object")
	ErrConflict = errors.New("the object is another version")
)

// The versions that are none.
const (
	// Absent is the version of an object that is not there.
	Absent = ""
	// Any is for a change of whatever there is.
	Any = "*"
)

// Bucket is the objects under one prefix. It is safe for concurrent use.
type Bucket struct {
	client *minio.Client
	name   string
	prefix string // empty, or ends in a slash
}

// Object is one object. Its name, of which others are the author, follows the prefix.
type Object struct {
	Name, Version string
	Size          int64
}

// Under is the objects under a folder of the prefix.
func (b *Bucket) Under(folder string) *Bucket {
	return &Bucket{client: b.client, name: b.name, prefix: b.prefix + folder + "/"}
}

// String is the address.
func (b *Bucket) String() string { return "s3://" + b.name + "/" + strings.TrimSuffix(b.prefix, "/") }

// List lists at most so many objects, in the order of their names. What is in folders is listed as the folder, whose
// name ends in a slash.
func (b *Bucket) List(ctx context.Context, most int) ([]Object, error) {
	return b.ListPart(ctx, "", "", most)
}

// ListPart is List of the objects whose names begin with a text and come after another one.
func (b *Bucket) ListPart(ctx context.Context, begin, after string, most int) ([]Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	opts := minio.ListObjectsOptions{Prefix: b.prefix + begin}
	if after != "" {
		opts.StartAfter = b.prefix + after
	}
	var list []Object
	for o := range b.client.ListObjectsIter(ctx, b.name, opts) {
		if o.Err != nil {
			return nil, b.explain("listing", o.Err)
		}
		list = append(list, Object{strings.TrimPrefix(o.Key, b.prefix), o.ETag, o.Size})
		if len(list) == most {
			break
		}
	}
	if err := ctx.Err(); err != nil { // the iterator may end without saying so
		return nil, b.explain("listing", err)
	}
	return list, nil
}

// Get reads an object of at most so many bytes.
func (b *Bucket) Get(ctx context.Context, name string, most int64) (data []byte, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	o, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, "", b.explain("reading", err)
	}
	defer o.Close()
	if data, err = io.ReadAll(io.LimitReader(o, most+1)); err != nil {
		return nil, "", b.explain("reading", err)
	}
	if int64(len(data)) > most {
		return nil, "", fmt.Errorf("reading %.80q: it has more than %d bytes", name, most)
	}
	info, err := o.Stat()
	if err != nil {
		return nil, "", b.explain("reading", err)
	}
	return data, info.ETag, nil
}

// Put writes an object in place of a version, which may be Absent or Any, and returns the new one.
func (b *Bucket) Put(ctx context.Context, name string, data []byte, version string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	tag, err := b.put(ctx, name, data, version)
	if !broken(err) {
		return tag, err
	}
	tag, err = b.put(ctx, name, data, version)
	if errors.Is(err, ErrConflict) { // perhaps with the first one, which nobody has answered
		if is, of, gerr := b.Get(ctx, name, int64(len(data))); gerr == nil && bytes.Equal(is, data) {
			return of, nil
		}
	}
	return tag, err
}

func (b *Bucket) put(ctx context.Context, name string, data []byte, version string) (string, error) {
	opts := minio.PutObjectOptions{ContentType: http.DetectContentType(data), DisableMultipart: true}
	switch version {
	case Any:
	case Absent:
		opts.SetMatchETagExcept("*")
	default:
		opts.SetMatchETag(version)
	}
	info, err := b.client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(data), int64(len(data)), opts)
	if err != nil {
		err = b.explain("writing", err)
		if errors.Is(err, ErrNotFound) { // AWS: the version that was to be replaced is gone
			err = ErrConflict
		}
		return "", err
	}
	return info.ETag, nil
}

// Remove removes a version of an object, or Any. Not every server makes a removal conditional: of one that does not, a
// version that came within the last milliseconds may be removed too.
func (b *Bucket) Remove(ctx context.Context, name, version string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if version != Any {
		info, err := b.client.StatObject(ctx, b.name, b.prefix+name, minio.StatObjectOptions{})
		if err != nil {
			return b.explain("removing", err)
		}
		if info.ETag != version {
			return ErrConflict
		}
		ctx = context.WithValue(ctx, matching{}, version)
	}
	if err := b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{}); err != nil {
		return b.explain("removing", err)
	}
	return nil
}

// matching is the key of a context's version that a removal is of.
type matching struct{}

// removals makes removals conditional, which the client cannot. A header need not be signed.
type removals struct{ next http.RoundTripper }

func (r removals) RoundTrip(req *http.Request) (*http.Response, error) {
	if version, ok := req.Context().Value(matching{}).(string); ok && req.Method == http.MethodDelete {
		req = req.Clone(req.Context())
		req.Header.Set("If-Match", `"`+version+`"`)
	}
	return r.next.RoundTrip(req)
}

// Check finds out whether the bucket can be used: read, or also written with conditions that hold. If the error is an
// UnreachableError, it may be used later.
func (b *Bucket) Check(ctx context.Context, write bool) error {
	if _, err := b.List(ctx, 1); err != nil || !write {
		return err
	}
	probe := ".codeforge-probe-" + strings.ToLower(rand.Text())
	version, err := b.Put(ctx, probe, []byte("1"), Absent)
	if err != nil {
		return err
	}
	defer func() { _ = b.Remove(context.WithoutCancel(ctx), probe, Any) }()
	for _, other := range []string{Absent, "0123456789abcdef0123456789abcdef"} {
		switch _, err := b.Put(ctx, probe, []byte("2"), other); {
		case errors.Is(err, ErrConflict):
		case err != nil:
			return err
		default:
			return fmt.Errorf("%s: the server ignores If-Match or If-None-Match of a PUT, so that of two changes at a time "+
				"one would be lost; use a server that knows them, as AWS, R2, and MinIO since 2024 do", b)
		}
	}
	if version, err = b.Put(ctx, probe, []byte("3"), version); err != nil {
		return err
	}
	return b.Remove(ctx, probe, version)
}
