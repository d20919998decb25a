// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unique"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/internal/strict"
)

// layout is a directory in the OCI image layout.
type layout struct {
	dir  string
	most int64 // bytes of index.json that are read again
	mu   sync.Mutex
	held *locked // while a batch is open

	folder sync.Mutex // of the blobs: the kernel lets one change it at a time, and who waits there keeps a processor busy
}

// openLayout opens a directory. One that is not a layout yet becomes one with the first
// write, so that what comes to nothing leaves nothing; whether it can is known now.
func openLayout(dir string) (*layout, error) {
	l := &layout{dir: dir, most: oci.MaxLayout}
	marker := l.marker()
	text, err := os.ReadFile(marker)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := writable(dir); err != nil {
			return nil, fmt.Errorf("open layout: %w", err)
		}
	case err != nil:
		return nil, fmt.Errorf("open layout: %w", err)
	default:
		var m struct {
			Version string `json:"imageLayoutVersion"`
		}
		if json.Unmarshal(text, &m) != nil || m.Version != "1.0.0" {
			return nil, fmt.Errorf("open layout: %s says %.80q, not version 1.0.0", marker, text)
		}
	}
	return l, nil
}

func (l *layout) marker() string { return filepath.Join(l.dir, "oci-layout") }

// absent says whether nothing was written yet.
func (l *layout) absent() bool {
	_, err := os.Stat(l.marker())
	return errors.Is(err, fs.ErrNotExist)
}

func (l *layout) path(digest string) string { return filepath.Join(l.dir, oci.BlobPath(digest)) }

func (l *layout) blobSize(_ context.Context, _, digest string) (int64, error) {
	info, err := os.Stat(l.path(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%w: %w", oci.ErrNotFound, err)
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// putData stores data that was verified.
func (l *layout) putData(ctx context.Context, repo string, d oci.Descriptor) error {
	return l.putFile(ctx, repo, d, func(w io.Writer) error {
		_, err := w.Write(d.Data)
		return err
	})
}

func (l *layout) putBlob(ctx context.Context, repo string, d oci.Descriptor, open Opener) error {
	return l.putFile(ctx, repo, d, func(w io.Writer) error {
		body, err := open()
		if err != nil {
			return err
		}
		defer body.Close()
		return copyVerified(ctx, w, body, d)
	})
}

func (l *layout) putFile(ctx context.Context, repo string, d oci.Descriptor, fill func(io.Writer) error) error {
	if there, err := hasBlob(ctx, l, repo, d); err != nil {
		return err
	} else if there && l.intact(d) {
		if kept, err := l.protect(ctx, repo, d); kept || err != nil {
			return err
		}
	}
	var err error
	if l.inBatch() { // which made the layout
		err = l.writeUnsynced(l.path(d.Digest), fill)
	} else if err = l.make(); err == nil {
		err = durable.Write(l.path(d.Digest), 0o644, fill)
	}
	return fault.In(err, "store %s", d.Digest)
}

// intact reads again what is small; images are too large to be read for nothing,
// and are hashed by everyone who fetches them.
func (l *layout) intact(d oci.Descriptor) bool {
	if d.Size > oci.MaxManifest {
		return true
	}
	data, err := os.ReadFile(l.path(d.Digest))
	return err == nil && d.Verify(data) == nil
}

func (l *layout) putManifest(ctx context.Context, repo string, d oci.Descriptor, tag string) error {
	if tag != "" && !oci.ValidTag(tag) {
		return fmt.Errorf("tag %.80q is not valid", tag)
	}
	if err := l.putData(ctx, repo, d); err != nil {
		return err
	}
	of, err := artifactType(d.Data)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	d = d.Bare()
	d.ArtifactType = of
	return l.change(func(x *index) { x.put(repo, tag, d) })
}

// artifactType returns that of a manifest or an index, which the caller has made or parsed.
func artifactType(raw []byte) (string, error) {
	const begins = `{"schemaVersion":2,"mediaType":"` + oci.MediaTypeManifest + `","artifactType":"`
	if rest, own := bytes.CutPrefix(raw, []byte(begins)); own { // as oci.Encode writes it: then all else need not be read
		if of, _, _ := bytes.Cut(rest, []byte(`"`)); !bytes.Contains(of, []byte(`\`)) {
			return unique.Make(string(of)).Value(), nil // they are few
		}
	}
	var kind struct {
		ArtifactType string `json:"artifactType"`
	}
	err := json.Unmarshal(raw, &kind)
	return kind.ArtifactType, err
}

func (l *layout) tags(_ context.Context, repo string) (tags []string, err error) {
	err = l.view(func(x *index) { tags = x.tags(repo) })
	return tags, err
}

func (l *layout) delete(_ context.Context, repo, reference string) error {
	var found bool
	err := l.change(func(x *index) { found = x.remove(repo, reference) })
	if err == nil && !found {
		err = fmt.Errorf("%s:%s: %w", repo, reference, oci.ErrNotFound)
	}
	return err
}

func (l *layout) referrers(_ context.Context, _, digest string) (list []oci.Descriptor, err error) {
	root, err := os.OpenRoot(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing was written yet
	}
	if err != nil {
		return nil, err
	}
	defer root.Close() // only read
	read := func(d string) (attached, error) { return readAttached(root, d) }
	err = l.view(func(x *index) { list = x.referrers(digest, read) })
	return list, err
}

func (l *layout) readIndex() (*index, error) {
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() // only read
	return readIndex(root)
}

func (l *layout) inBatch() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held != nil
}

func (l *layout) view(f func(*index)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		f(l.held.index)
		return nil
	}
	if l.absent() {
		f(newIndex())
		return nil
	}
	x, err := l.readIndex()
	if err == nil {
		f(x)
	}
	return err
}

// change reads index.json, lets f change it and writes it back, alone among all
// processes.
func (l *layout) change(f func(*index)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		f(l.held.index)
		return nil
	}
	b, err := l.begin()
	if err != nil {
		return err
	}
	defer b.lock.Close() // it ends the lock, nothing is written through it
	f(b.index)
	return l.write(b.index)
}

func (l *layout) begin() (*locked, error) {
	if err := l.make(); err != nil {
		return nil, err
	}
	lock, err := lockLayout(l.dir, false)
	if err != nil {
		return nil, err
	}
	x, err := l.readIndex()
	if err != nil {
		_ = lock.Close() // it ends the lock, nothing is written through it
		return nil, err
	}
	return &locked{x, lock}, nil
}

func (l *layout) write(x *index) error {
	return durable.Fill(filepath.Join(l.dir, "index.json"), 0o644, func(f *os.File) error {
		if err := x.write(&upTo{f, l.most}); !errors.Is(err, errLarge) {
			return err
		}
		return cli.WithHint(fmt.Errorf("write %s/index.json: it would have more than the %d bytes that are read again", l.dir, l.most),
			"publish at a registry server, which has no such file")
	})
}

// upTo writes so many bytes, and no more.
type upTo struct {
	to   io.Writer
	left int64
}

var errLarge = errors.New("too large")

// Write implements [io.Writer].
func (u *upTo) Write(p []byte) (int, error) {
	if u.left -= int64(len(p)); u.left < 0 {
		return 0, errLarge
	}
	return u.to.Write(p)
}

// OpenNamed is [Open] for a place that an operator named: no layout is made among other files.
func OpenNamed(ref string, o Options) (*Registry, error) {
	if parsed, err := oci.ParseRef(ref); err == nil && parsed.IsLayout() && !isLayout(parsed.Layout) {
		if files, err := os.ReadDir(parsed.Layout); err == nil && len(files) > 0 {
			return nil, cli.Usage("name an empty or a new directory", "%s is not an OCI layout, and not empty", ref)
		}
	}
	return Open(ref, o)
}

// CheckExists refuses a layout that is not there: nothing can be read of it, and its name is likely a
// wrong one.
func CheckExists(ref string) error {
	parsed, err := oci.ParseRef(ref)
	if err != nil || !parsed.IsLayout() {
		return nil //nolint:nilerr // opening it says what is wrong
	}
	if _, err := os.Stat(filepath.Join(parsed.Layout, "oci-layout")); !errors.Is(err, fs.ErrNotExist) {
		return nil //nolint:nilerr // likewise
	}
	for dir := filepath.Dir(parsed.Layout); dir != "." && dir != "/"; dir = filepath.Dir(dir) {
		if isLayout(dir) { // as of out/node:node1
			return cli.Usage("oci:"+dir+" is one: a repository or a tag in it is not part of its name", "%s is not an OCI layout", ref)
		}
	}
	return cli.Usage("'caisson build' makes one with --to "+ref+
		", or 'caisson publish' for a site without a layer", "%s is not an OCI layout", ref)
}

func isLayout(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "oci-layout"))
	return err == nil
}

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
	x.names = make(map[string]oci.Descriptor, len(list)) // of each node of a fleet
	for _, n := range list {
		if n.Name != "" {
			x.names[n.Name] = n.Descriptor
		} else {
			x.plain[n.Digest] = n.Descriptor
		}
	}
	return x, nil
}

// write sorts, so that the same content has the same bytes.
func (x *index) write(w io.Writer) error {
	return oci.WriteLayoutIndex(w, func(yield func(oci.Named) bool) {
		for _, name := range slices.Sorted(maps.Keys(x.names)) {
			if !yield(oci.Named{Name: name, Descriptor: x.names[name]}) {
				return
			}
		}
		for _, digest := range slices.Sorted(maps.Keys(x.plain)) {
			if !yield(oci.Named{Descriptor: x.plain[digest]}) {
				return
			}
		}
	})
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
