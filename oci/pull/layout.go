// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/internal/capped"
)

// layout reads a directory in the OCI image layout. A tag is the descriptor in
// index.json whose ref.name is "repository:tag".
type layout struct {
	root *os.Root
	mu   sync.Mutex
	seen os.FileInfo // of index.json when tags was read
	tags map[string]oci.Descriptor
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

func (l *layout) Manifest(_ context.Context, repo, reference, etag string) (oci.Response, error) {
	if err := oci.CheckName(repo, reference); err != nil {
		return oci.Response{}, err
	}
	digest := reference
	if !oci.ValidDigest(reference) {
		d, err := l.resolve(repo, reference)
		if err != nil {
			return oci.Response{}, err
		}
		digest = d.Digest
	}
	if etag == digest {
		return oci.Response{Digest: digest, ETag: etag, NotModified: true}, nil
	}
	raw, err := capped.ReadFile(l.root, oci.BlobPath(digest), oci.MaxManifest)
	if err != nil {
		return oci.Response{}, missing(err)
	}
	if got := oci.Digest(raw); got != digest {
		return oci.Response{}, &oci.DamagedError{Err: fmt.Errorf("file of %s holds %s: the layout is damaged", digest, got)}
	}
	return oci.Response{Data: raw, Digest: digest, ETag: digest}, nil
}

func (l *layout) Blob(_ context.Context, _ string, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	if !oci.ValidDigest(d.Digest) {
		return nil, fmt.Errorf("digest %q is not valid", d.Digest)
	}
	f, err := l.root.Open(oci.BlobPath(d.Digest))
	if err != nil {
		return nil, missing(err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		_ = f.Close() // only read
		return nil, err
	}
	return limited{io.LimitReader(f, d.Size-offset), f}, nil
}

// Ranges reads spans of a file.
func (l *layout) Ranges(_ context.Context, _ string, d oci.Descriptor, spans []oci.Span) (io.ReadCloser, error) {
	if !oci.ValidDigest(d.Digest) {
		return nil, fmt.Errorf("digest %q is not valid", d.Digest)
	}
	if err := oci.CheckSpans(d, spans); err != nil {
		return nil, err
	}
	f, err := l.root.Open(oci.BlobPath(d.Digest))
	if err != nil {
		return nil, missing(err)
	}
	var parts []io.Reader
	for _, s := range spans {
		parts = append(parts, io.NewSectionReader(f, s.From, s.To-s.From))
	}
	return limited{io.MultiReader(parts...), f}, nil
}

func (l *layout) resolve(repo, tag string) (oci.Descriptor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	info, err := l.root.Stat("index.json")
	if err != nil {
		return oci.Descriptor{}, err
	}
	// index.json is replaced, never changed, so another file is another content.
	if l.seen == nil || !os.SameFile(info, l.seen) || !info.ModTime().Equal(l.seen.ModTime()) {
		raw, err := capped.ReadFile(l.root, "index.json", oci.MaxLayout)
		if err != nil {
			return oci.Descriptor{}, missing(err)
		}
		index, err := oci.ParseLayoutIndex(raw)
		if err != nil {
			return oci.Descriptor{}, err
		}
		l.seen, l.tags = info, map[string]oci.Descriptor{}
		for _, d := range index.Manifests {
			l.tags[d.Annotations[oci.AnnotationRefName]] = d
		}
	}
	if d, ok := l.tags[repo+":"+tag]; ok {
		return d, nil
	}
	return oci.Descriptor{}, fmt.Errorf("%s:%s: %w", repo, tag, oci.ErrNotFound)
}

func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", oci.ErrNotFound, err)
	}
	return err
}

// limited reads from one and closes the other.
type limited struct {
	io.Reader
	io.Closer
}
