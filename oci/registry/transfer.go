// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Transfer copies artifacts from one place to another, as they are: digests do not change, so
// signatures hold. It goes by digest, leaves out what is there already, and names nothing before
// all of it is there, so a transfer that was cut goes on where it was. It may be used by several
// goroutines.
type Transfer struct {
	From, To *Registry
	Say      func(format string, args ...any) // gets what is left out; nil drops it

	Dry bool     // count what would be copied, and write nothing
	dry sync.Map // digests of blobs that were counted

	attach sync.Mutex // lists of referrers are read, changed and written back
}

// Moved counts what a copy had to bring: what was there already is not counted.
type Moved struct {
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
}

func (m *Moved) add(n Moved) { m.Blobs, m.Bytes = m.Blobs+n.Blobs, m.Bytes+n.Bytes }

// maxDepth is how far attachments of attachments are followed: a signature of an
// SBOM of a layer.
const maxDepth = 4

// Copy copies what a digest names, with all that it leads to and all that is attached
// to it, and then points the tags at it.
func (t *Transfer) Copy(ctx context.Context, repo, digest string, tags ...string) (Moved, error) {
	return t.copy(ctx, repo, digest, tags, maxDepth)
}

func (t *Transfer) copy(ctx context.Context, repo, digest string, tags []string, depth int) (all Moved, err error) {
	raw, _, err := t.From.Manifest(ctx, repo, digest)
	if err != nil {
		return all, fmt.Errorf("read %s@%s: %w", repo, digest, err)
	}
	what, err := parse(raw)
	if err != nil {
		return all, fmt.Errorf("%s@%s: %w", repo, digest, err)
	}
	for _, d := range what.blobs {
		moved, err := t.blob(ctx, repo, d)
		if all.add(moved); err != nil {
			return all, fmt.Errorf("%s@%s: %w", repo, digest, err)
		}
	}
	for _, d := range what.manifests {
		moved, err := t.copy(ctx, repo, d, nil, depth)
		if all.add(moved); err != nil {
			return all, err
		}
	}
	attached, err := t.From.Referrers(ctx, repo, digest)
	if err != nil {
		return all, fmt.Errorf("what is attached to %s@%s: %w", repo, digest, err)
	}
	if len(attached) == 0 {
		return all, t.put(ctx, repo, what, raw, tags)
	}
	if err := t.put(ctx, repo, what, raw, nil); err != nil {
		return all, err
	}
	moved, err := t.attachments(ctx, repo, digest, attached, depth)
	if all.add(moved); err != nil || len(tags) == 0 {
		return all, err
	}
	return all, t.put(ctx, repo, what, raw, tags) // named once its signatures are there
}

// attachments copies what is attached to a manifest. What is not in a form that can be
// copied is left out: it is none of caisson's.
func (t *Transfer) attachments(ctx context.Context, repo, digest string, list []oci.Descriptor, depth int) (all Moved, err error) {
	if depth == 0 {
		return all, fmt.Errorf("%s@%s: attachments of attachments are more than %d deep", repo, digest, maxDepth)
	}
	var want []string
	for _, d := range list {
		moved, err := t.copy(ctx, repo, d.Digest, nil, depth-1)
		all.add(moved)
		if refusal.Of(err) == refusal.MediaType {
			if t.Say != nil {
				t.Say("left out %s, which is attached to %s: %v", d.Digest, digest, err)
			}
			continue
		}
		if err != nil {
			return all, err
		}
		want = append(want, d.Digest)
	}
	if t.Dry {
		return all, nil
	}
	// On registries without the referrers API another writer may have taken an entry
	// out of the list meanwhile, see [Registry.Attach].
	for range 5 {
		got, err := t.To.Referrers(ctx, repo, digest)
		if err != nil {
			return all, fmt.Errorf("what is attached to %s@%s: %w", repo, digest, err)
		}
		want = slices.DeleteFunc(want, func(d string) bool {
			return slices.ContainsFunc(got, func(g oci.Descriptor) bool { return g.Digest == d })
		})
		if len(want) == 0 {
			return all, nil
		}
		for _, d := range want {
			if _, err := t.copy(ctx, repo, d, nil, depth-1); err != nil {
				return all, err
			}
		}
	}
	return all, fmt.Errorf("%s does not keep %s in its list of what is attached to %s@%s", t.To.Ref(), want[0], repo, digest)
}

// parts holds the blobs and manifests that a manifest or an index leads to.
type parts struct {
	mediaType string
	blobs     []oci.Descriptor
	manifests []string
	attached  bool
}

func parse(raw []byte) (p parts, err error) {
	x, err := oci.ParseIndex(raw)
	if err == nil {
		return parts{mediaType: x.MediaType, attached: x.Subject != nil,
			manifests: plain.Each(x.Manifests, func(d oci.Descriptor) string { return d.Digest })}, nil
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		return p, err
	}
	return parts{mediaType: m.MediaType, blobs: append([]oci.Descriptor{m.Config}, m.Layers...), attached: m.Subject != nil}, nil
}

func (t *Transfer) put(ctx context.Context, repo string, what parts, raw []byte, tags []string) error {
	if t.Dry {
		return nil
	}
	if what.attached {
		t.attach.Lock()
		defer t.attach.Unlock()
	}
	_, err := t.To.PutManifest(ctx, repo, what.mediaType, raw, tags...)
	return err
}

func (t *Transfer) blob(ctx context.Context, repo string, d oci.Descriptor) (Moved, error) {
	there, err := t.To.HasBlob(ctx, repo, d)
	if err != nil || there {
		return Moved{}, err
	}
	if t.Dry {
		if _, counted := t.dry.LoadOrStore(repo+"@"+d.Digest, true); counted {
			return Moved{}, nil
		}
		return Moved{Blobs: 1, Bytes: d.Size}, nil
	}
	open := func() (io.ReadCloser, error) { return t.From.Source().Blob(ctx, repo, d, 0) }
	if err := t.To.PutBlob(ctx, repo, d, open); err != nil {
		return Moved{}, err
	}
	return Moved{Blobs: 1, Bytes: d.Size}, nil
}
