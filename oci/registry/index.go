// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/internal/strict"
)

// index is index.json, with its tags at hand.
type index struct {
	names map[string]oci.Descriptor // by "repository:tag"
	plain map[string]oci.Descriptor // by digest: what has no tag
}

func newIndex() *index { return &index{map[string]oci.Descriptor{}, map[string]oci.Descriptor{}} }

func readIndex(root *os.Root) (*index, error) {
	raw, err := strict.ReadFileCapped(root, "index.json", oci.MaxLayout)
	if err != nil {
		return nil, err
	}
	list, err := oci.ParseLayoutIndex(raw)
	if err != nil {
		return nil, err
	}
	x := newIndex()
	for _, n := range list {
		if n.Name != "" {
			x.names[n.Name] = n.Descriptor
		} else {
			x.plain[n.Digest] = n.Descriptor
		}
	}
	return x, nil
}

// encode sorts, so that the same content has the same bytes.
func (x *index) encode() []byte {
	list := make([]oci.Named, 0, len(x.names)+len(x.plain))
	for _, name := range slices.Sorted(maps.Keys(x.names)) {
		list = append(list, oci.Named{Name: name, Descriptor: x.names[name]})
	}
	for _, digest := range slices.Sorted(maps.Keys(x.plain)) {
		list = append(list, oci.Named{Descriptor: x.plain[digest]})
	}
	return oci.EncodeLayoutIndex(list)
}

func (x *index) put(repo, tag string, d oci.Descriptor) {
	if tag == "" {
		x.plain[d.Digest] = d
		return
	}
	x.names[repo+":"+tag] = d
}

func (x *index) remove(repo, reference string) (found bool) {
	if !oci.ValidDigest(reference) {
		_, found = x.names[repo+":"+reference]
		delete(x.names, repo+":"+reference)
		return found
	}
	before := len(x.names) + len(x.plain)
	delete(x.plain, reference)
	maps.DeleteFunc(x.names, func(_ string, d oci.Descriptor) bool { return d.Digest == reference })
	return len(x.names)+len(x.plain) < before
}

func (x *index) tags(repo string) []string {
	all := slices.Collect(maps.Keys(x.names)) // of each node of a fleet: only what is picked is sorted
	tags := plain.Pick(all, func(name string) (string, bool) { return strings.CutPrefix(name, repo+":") })
	slices.Sort(tags)
	return tags
}

// referrers has a descriptor's annotations be the manifest's, as a server's list has them.
func (x *index) referrers(digest string, read func(string) (attached, error)) []oci.Descriptor {
	var list []oci.Descriptor
	for _, key := range slices.Sorted(maps.Keys(x.plain)) {
		d := x.plain[key]
		if d.MediaType != oci.MediaTypeManifest {
			continue
		}
		if m, err := read(d.Digest); err == nil && m.subject == digest { // what cannot be read is not attached
			d.Annotations = m.annotations
			list = append(list, d)
		}
	}
	return list
}

// attached is what a list of referrers needs to know of a manifest.
type attached struct {
	subject     string // digest, or ""
	annotations map[string]string
}

func readAttached(root *os.Root, digest string) (attached, error) {
	raw, err := strict.ReadFileCapped(root, oci.BlobPath(digest), oci.MaxManifest)
	if err != nil {
		return attached{}, err
	}
	m, err := oci.ParseManifest(raw)
	if err != nil || m.Subject == nil {
		return attached{}, err
	}
	return attached{m.Subject.Digest, m.Annotations}, nil
}
