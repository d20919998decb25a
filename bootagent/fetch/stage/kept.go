// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
)

// kept is a source that answers from the store and asks another one for the rest,
// which it keeps. It holds manifests as they were served, so that what leads from
// a signed digest to a description is verified again at each boot: no file on the
// disk says which description belongs to which layer.
type kept struct {
	store *layers.Store
	from  oci.Source // nil without network
	say   func(format string, args ...any)

	fetched bool // something that was not in the store
}

// Manifest takes digests only.
func (k *kept) Manifest(ctx context.Context, repo, digest, _ string) (oci.Response, error) {
	if data, err := k.store.Get(digest, oci.MaxManifest); err == nil {
		return oci.Response{Data: data, Digest: digest}, nil
	}
	if k.from == nil {
		return oci.Response{}, absent(digest)
	}
	r, err := k.from.Manifest(ctx, repo, digest, "")
	if err == nil {
		k.keep(digest, r.Data)
	}
	return r, err
}

// Blob takes small ones, whole.
func (k *kept) Blob(ctx context.Context, repo string, d oci.Descriptor, _ int64) (io.ReadCloser, error) {
	data, err := k.store.Get(d.Digest, d.Size)
	if err != nil {
		if k.from == nil {
			return nil, absent(d.Digest)
		}
		if data, err = oci.ReadBlob(ctx, k.from, repo, d, oci.MaxConfig); err != nil {
			return nil, err
		}
		k.keep(d.Digest, data)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// keep stores what the next boot may need. A full disk does not stop this one.
func (k *kept) keep(digest string, data []byte) {
	k.fetched = true
	if err := k.store.Put(digest, data); err != nil {
		k.say("not kept: %v", err)
	}
}

var errAbsent = errors.New("is not in the store")

func absent(digest string) error {
	return fmt.Errorf("%s %w", digest, errAbsent)
}

// Trees is how the kernel checks images while they are read.
type Trees struct {
	Sound map[string]bool // blobs that the last good run has left as they should be, see layers.Store
}

// Checked brings images into the store. Those that it returns, by digest, the kernel is to
// check while they are read; all others are as [Stager.Verified] leaves them. Of the former
// one that the last good run has left is not read here, which keeps a boot short;
// any other is read once, for its tree, whose root says as much as its digest.
func (s Stager) Checked(ctx context.Context, list ...Part) (whenRead map[string]verity.Hash, err error) {
	whenRead = map[string]verity.Hash{}
	for _, part := range list {
		root, err := verity.Parse(part.Root)
		if s.Trees == nil || err != nil { // without a root
			if err := s.Verified(ctx, part); err != nil {
				return nil, err
			}
			continue
		}
		made := s.Trees.Sound[part.Digest] && s.Store.Has(part.Digest, part.Size) && s.Store.HasTree(part.Digest, part.Size)
		made = made || s.Store.Has(part.Digest, part.Size) && s.Store.MakeTree(part.Digest, root) == nil // why not, Verified says
		if !made {
			if err := s.Verified(ctx, part); err != nil {
				return nil, err
			}
			if err := s.Store.MakeTree(part.Digest, root); err != nil {
				s.Say("%s is not checked while it is read: %v", part.Name, err)
				continue
			}
		}
		whenRead[part.Digest] = root
	}
	return whenRead, nil
}
