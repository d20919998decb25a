// SPDX-License-Identifier: Apache-2.0

package published

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// KindMemory is the kind of the file's document.
const KindMemory = "PublisherMemory"

// maxMemory caps what is read, in bytes.
const maxMemory = 1 << 20

// Seen is the newest that was seen of a fleet at one place.
type Seen struct {
	Fleet      string `json:"fleet"`
	Epoch      uint64 `json:"epoch"`
	Generation uint64 `json:"generation"`         // of fleet:index
	Reserved   uint64 `json:"reserved,omitempty"` // greatest generation that this publisher began, in the same epoch
	Index      Stamp  `json:"index,omitzero"`
	Current    Stamp  `json:"current,omitzero"`
	Layers     Stamp  `json:"layers,omitzero"` // the statement about layer:current
	Own        Own    `json:"own,omitzero"`
}

// over returns s with what another process has seen of the same fleet meanwhile and is newer: no floor
// falls, no number that was given out is forgotten, and what is of either is this publisher's own.
func (s Seen) over(theirs Seen) Seen {
	if theirs.Fleet != s.Fleet {
		return s
	}
	one := s
	later := cmp.Or(cmp.Compare(theirs.Epoch, s.Epoch), cmp.Compare(theirs.Generation, s.Generation))
	if later > 0 {
		one = theirs
	}
	if later == 0 {
		one.Index = s.Index.Newer(theirs.Index)
	}
	if theirs.Epoch == s.Epoch {
		one.Reserved = max(s.Reserved, theirs.Reserved)
	}
	one.Layers, one.Current, one.Own = s.Layers.Newer(theirs.Layers), s.Current.Newer(theirs.Current), s.Own
	if cmp.Or(cmp.Compare(theirs.Own.Epoch, s.Own.Epoch), cmp.Compare(theirs.Own.Generation, s.Own.Generation)) > 0 {
		one.Own = theirs.Own
	}
	return one
}

// Own is the newest generation that rests on nothing but what this publisher wrote, by the digests of
// its root: what another has published stays in the roots that are written over it.
type Own struct {
	Epoch      uint64   `json:"epoch"`
	Generation uint64   `json:"generation"`
	Digest     string   `json:"digest"`
	Next       []string `json:"next,omitempty"` // roots of a run that was cut, any of which may have taken its place
}

// Mine returns Own, or what a release that did not keep it has in its place: the last that it wrote,
// where it began that.
func (s Seen) Mine() Own {
	switch {
	case s.Own.Digest != "" || s.Own.Next != nil:
		return s.Own
	case s.Generation > s.Reserved:
		return Own{Epoch: s.Epoch, Generation: s.Reserved, Digest: "unknown"}
	}
	return Own{Epoch: s.Epoch, Generation: s.Generation, Digest: s.Index.Digest}
}

// Has reports whether a root is of this publisher alone.
func (o Own) Has(digest string) bool { return o.Digest == digest || slices.Contains(o.Next, digest) }

// Stamp is one signed document.
type Stamp struct {
	Digest   string    `json:"digest"`
	IssuedAt time.Time `json:"issuedAt"`
}

// Newer returns the newer of two stamps; s wins a draw.
func (s Stamp) Newer(other Stamp) Stamp {
	if other.IssuedAt.After(s.IssuedAt) {
		return other
	}
	return s
}

// Memory is what a publisher remembers of the fleets that it has seen: a floor below which nothing
// that a registry serves is signed again. It is one small JSON file beside the site, written with
// fsync and fit for version control: the same memory has the same bytes. It holds no secret, and
// losing it costs protection, never a fleet. It may be used by several goroutines.
type Memory struct {
	name   string
	mu     sync.Mutex
	places map[string]Seen
	fixed  bool
}

// Fixed makes Set do nothing, for a preview that must not write.
func (m *Memory) Fixed() { m.fixed = true }

type memoryFile struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Places     map[string]Seen `json:"places"` // by registry reference
}

// OpenMemory reads a memory. One that does not exist remembers nothing yet.
func OpenMemory(name string) (*Memory, error) {
	m := &Memory{name: name, places: map[string]Seen{}}
	data, err := ownfiles.ReadPublic(name, maxMemory)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read memory: %w", err)
	}
	var doc memoryFile
	if err := spec.DecodeFile(data, KindMemory, &doc); err != nil {
		err = fmt.Errorf("read memory %s: %w", name, err)
		if spec.OfLaterRelease(err) {
			return nil, err
		}
		return nil, cli.WithHint(err, "put back the last version of the file; without it, what is older than it said could be signed again")
	}
	if doc.Places != nil {
		m.places = doc.Places
	}
	return m, nil
}

// Name returns the file's name, or "" for a nil Memory.
func (m *Memory) Name() string {
	if m == nil {
		return ""
	}
	return m.name
}

// At returns what was seen at a place, and whether anything was. A nil Memory has
// seen nothing.
func (m *Memory) At(place string) (Seen, bool) {
	if m == nil {
		return Seen{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.places[place]
	return s, ok
}

// Again reads what other processes have remembered meanwhile.
func (m *Memory) Again() error {
	if m == nil || m.name == "" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, err := OpenMemory(m.name)
	if err != nil {
		return err
	}
	m.places = now.places
	return nil
}

// memoryPatience is how long another process may take to remember.
const memoryPatience = 10 * time.Second

// Set remembers, durably, before it returns. What another process has remembered meanwhile of
// other places stays, and what is newer of this one. A nil Memory forgets.
func (m *Memory) Set(place string, s Seen) error {
	if m == nil || m.fixed {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if reflect.DeepEqual(m.places[place], s) {
		return nil
	}
	if err := m.set(place, s); err != nil {
		return cli.WithHint(fmt.Errorf("remember what is published: %w", err), "--remember FILE names another place")
	}
	return nil
}

func (m *Memory) set(place string, s Seen) error {
	dir, err := os.Open(filepath.Dir(m.name))
	if err != nil {
		return err
	}
	defer dir.Close() // which ends the lock
	ctx, cancel := context.WithTimeout(context.Background(), memoryPatience)
	defer cancel()
	if err := stall.Lock(ctx, dir, false); err != nil {
		return fmt.Errorf("lock %s: %w", dir.Name(), err)
	}
	now, err := OpenMemory(m.name)
	if err != nil {
		return err
	}
	if theirs := now.places[place]; !reflect.DeepEqual(theirs, m.places[place]) {
		s = s.over(theirs)
	}
	m.places = now.places
	m.places[place] = s
	data, err := json.MarshalIndent(memoryFile{spec.APIVersion, KindMemory, m.places}, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(m.name, append(data, '\n'), 0o644)
}

// Elsewhere refuses a directory that is not here and that something was published to: its name
// is relative, and this is another directory.
func (m *Memory) Elsewhere(ref oci.Ref) error {
	if m == nil || !ref.IsLayout() || filepath.IsAbs(ref.Layout) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(ref.Layout, "index.json")); !errors.Is(err, fs.ErrNotExist) {
		return nil //nolint:nilerr // what is wrong with it is said by who reads it
	}
	if seen, known := m.At(ref.String()); known && seen.Generation > 0 {
		return cli.Usage("go to the directory where it was published from: oci:DIR is relative to the current one",
			"%s held generation %d of fleet %q, and is not below this directory", ref, seen.Generation, seen.Fleet)
	}
	return nil
}
