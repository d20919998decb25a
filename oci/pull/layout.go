// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	digests "github.com/caisson-os/caisson/internal/digest"
)

// layout reads a directory in the OCI image layout. A tag is the descriptor in
// index.json whose ref.name is "repository:tag".
type layout struct {
	root *os.Root
	mu   sync.Mutex
	seen os.FileInfo // of index.json when tags was read
	tags map[string]Descriptor
}

func openLayout(dir string) (*layout, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open layout: %w", err)
	}
	if _, err := root.Stat("oci-layout"); err != nil {
		_ = root.Close() // only read
		return nil, fmt.Errorf("%s is not an OCI layout: %w", dir, err)
	}
	return &layout{root: root}, nil
}

func (l *layout) Manifest(_ context.Context, repo, reference, etag string) (Response, error) {
	if err := checkName(repo, reference); err != nil {
		return Response{}, err
	}
	digest := reference
	if !ValidDigest(reference) {
		d, err := l.resolve(repo, reference)
		if err != nil {
			return Response{}, err
		}
		digest = d.Digest
	}
	if etag == digest {
		return Response{Digest: digest, ETag: etag, NotModified: true}, nil
	}
	raw, err := readCapped(l.root, BlobPath(digest), MaxManifest)
	if err != nil {
		return Response{}, err
	}
	if got := Digest(raw); got != digest {
		return Response{}, &DamagedError{fmt.Errorf("file of %s holds %s: the layout is damaged", digest, got)}
	}
	return Response{Data: raw, Digest: digest, ETag: digest}, nil
}

func (l *layout) Blob(_ context.Context, _ string, d Descriptor, offset int64) (io.ReadCloser, error) {
	if !ValidDigest(d.Digest) {
		return nil, fmt.Errorf("digest %q is not valid", d.Digest)
	}
	f, err := l.root.Open(BlobPath(d.Digest))
	if err != nil {
		return nil, missing(err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		_ = f.Close() // only read
		return nil, err
	}
	return limited{io.LimitReader(f, d.Size-offset), f}, nil
}

func (l *layout) resolve(repo, tag string) (Descriptor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	info, err := l.root.Stat("index.json")
	if err != nil {
		return Descriptor{}, err
	}
	// index.json is replaced, never changed, so another file is another content.
	if l.seen == nil || !os.SameFile(info, l.seen) || !info.ModTime().Equal(l.seen.ModTime()) {
		raw, err := readCapped(l.root, "index.json", MaxLayout)
		if err != nil {
			return Descriptor{}, err
		}
		index, err := ParseLayoutIndex(raw)
		if err != nil {
			return Descriptor{}, err
		}
		l.seen, l.tags = info, map[string]Descriptor{}
		for _, d := range index.Manifests {
			l.tags[d.Annotations[AnnotationRefName]] = d
		}
	}
	if d, ok := l.tags[repo+":"+tag]; ok {
		return d, nil
	}
	return Descriptor{}, fmt.Errorf("%s:%s: %w", repo, tag, ErrNotFound)
}

// BlobPath is where a layout keeps the content of a valid digest.
func BlobPath(digest string) string {
	return "blobs/sha256/" + digests.Hex(digest)
}

func readCapped(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, missing(err)
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return data, err
}

func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// limited reads from one and closes the other.
type limited struct {
	io.Reader
	io.Closer
}

// DamagedError is the error for a layout whose files are not what they were: cut,
// altered or of another program. Asking again does not help.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string { return e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// Hint says what an operator can do about it.
func (e *DamagedError) Hint() string {
	return "put back a copy of the layout, or build and publish into a new directory"
}
