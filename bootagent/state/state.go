// SPDX-License-Identifier: Apache-2.0

// Package state is the node's memory: one folder, on the state disk or, on a
// diskless node, in memory. It holds state.json, the accepted overlays with
// their manifests, and identity that outlives a root (machine-id, host keys).
//
// Every change is one durable rename: a cut leaves the old state or the new.
// The package records decisions and takes none; what may be accepted is decided
// in bootagent/fetch, what is good in bootagent/gates. Stages of the agent
// import it.
package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// State is state.json.
type State struct {
	Tracking spec.Tracking `json:"tracking"`
	DHCPName string        `json:"told,omitempty"`     // the name by which DHCP led to the overlay; without DHCP it is this node's only claim to it
	Current  *Generation   `json:"current,omitempty"`  // the last good one
	Previous *Generation   `json:"previous,omitempty"` // good before that
	Staged   *Generation   `json:"staged,omitempty"`   // accepted, not yet proven by a boot or an apply
	Floor    spec.Floor    `json:"floor"`
	AtFloor  string        `json:"atFloor,omitempty"`  // digest of the overlay that was accepted at the floor
	Fleet    Fleet         `json:"fleet,omitzero"`     // what the newest fleet:current said
	Newest   int64         `json:"newest,omitempty"`   // newest accepted issuedAt, seconds since 1970
	Rejected []string      `json:"rejected,omitempty"` // digests of layers or overlays never to run again
}

// Fleet is the newest fleet:current that this node has accepted.
type Fleet struct {
	Minimum   spec.Floor `json:"minimum"`
	Permitted bool       `json:"permitted,omitempty"` // an epoch key's permission for Minimum.Epoch was verified
	Issued    int64      `json:"issued"`              // seconds since 1970; 0 where the date was not credible
	Expires   int64      `json:"expires,omitempty"`   // seconds since 1970
	Reject    []string   `json:"reject,omitempty"`
}

// Empty reports whether the node has never accepted a fleet:current.
func (f Fleet) Empty() bool {
	return f.Minimum == (spec.Floor{}) && f.Issued == 0 && f.Expires == 0 && f.Reject == nil
}

// Generation is one accepted overlay.
type Generation struct {
	Overlay    string `json:"overlay"` // digest of the overlay document
	Layer      string `json:"layer"`
	Epoch      uint64 `json:"epoch"`
	Generation uint64 `json:"generation"`
	Attempts   int    `json:"attempts,omitempty"` // boots that were begun and never proven
}

// Generations are those that are kept, best first: the one that the node last ran
// well, the one before, and the one that it accepted and has not proven yet.
func (s *State) Generations() []*Generation {
	return slices.DeleteFunc([]*Generation{s.Current, s.Previous, s.Staged}, func(g *Generation) bool { return g == nil })
}

// Clone returns a copy that shares nothing with s.
func (s *State) Clone() *State {
	c := *s
	c.Rejected, c.Fleet.Reject = slices.Clone(s.Rejected), slices.Clone(s.Fleet.Reject)
	for _, g := range []**Generation{&c.Current, &c.Previous, &c.Staged} {
		if *g != nil {
			copied := **g
			*g = &copied
		}
	}
	return &c
}

// Folder is an open state folder.
type Folder struct{ dir string }

// limit caps what is read back: nothing that is written here comes near it.
const limit = 16 << 20

// Open makes the folder's skeleton where it is missing, and closes it to everybody
// but root: a disk that others had in hand may have links or foreign owners.
func Open(dir string) (*Folder, error) {
	for _, sub := range []string{"", "overlays", "journal", "exec", "identity"} {
		if err := ownfiles.Folder(filepath.Join(dir, sub)); err != nil {
			return nil, fmt.Errorf("open state: %w", err)
		}
	}
	return &Folder{dir: dir}, nil
}

// Path is a path below the folder.
func (f *Folder) Path(elem ...string) string {
	return filepath.Join(append([]string{f.dir}, elem...)...)
}

// Load reads state.json; where there is none yet it returns a following node
// with floor zero. A state that cannot be read is an error and never an empty
// one: an empty state would forget the floor.
func (f *Folder) Load() (*State, error) {
	data, err := readCapped(f.Path("state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return &State{Tracking: spec.Following}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	return parse(data)
}

func parse(data []byte) (*State, error) {
	var s State
	// Not spec.Decode: the loader's agent and the layer's write the same file, and
	// either may be the older one.
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	switch s.Tracking {
	case spec.Following, spec.Frozen:
	default:
		return nil, fmt.Errorf("read state: unknown tracking %q", s.Tracking)
	}
	return &s, nil
}

// Save replaces state.json.
func (f *Folder) Save(s *State) error {
	data, err := spec.Encode(s)
	if err != nil {
		return err
	}
	if err := write(f.Path("state.json"), data); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// SetDHCPName records the name that DHCP gave, "" where the overlay was found
// without it.
func (f *Folder) SetDHCPName(name string) error {
	s, err := f.Load()
	if err != nil || s.DHCPName == name {
		return err
	}
	s.DHCPName = name
	return f.Save(s)
}

// SaveOverlay keeps an accepted candidate, encoded by fetch.Candidate.Save, under
// the digest of its overlay.
func (f *Folder) SaveOverlay(digest string, saved []byte) error {
	if err := write(f.overlayPath(digest), saved); err != nil {
		return fmt.Errorf("keep overlay: %w", err)
	}
	return nil
}

// LoadOverlay returns what SaveOverlay kept. The caller verifies it anew.
func (f *Folder) LoadOverlay(digest string) ([]byte, error) {
	data, err := readCapped(f.overlayPath(digest))
	if err != nil {
		return nil, fmt.Errorf("kept overlay: %w", err)
	}
	return data, nil
}

// CollectOverlays deletes the overlays that s does not name.
func (f *Folder) CollectOverlays(s *State) error {
	keep := map[string]bool{}
	for _, g := range s.Generations() {
		keep[filepath.Base(f.overlayPath(g.Overlay))] = true
	}
	entries, err := os.ReadDir(f.Path("overlays"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			if err := os.Remove(f.Path("overlays", e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Folder) overlayPath(digest string) string {
	hexes := strings.TrimPrefix(digest, "sha256:")
	if strings.Trim(hexes, "0123456789abcdef") != "" || hexes == "" {
		hexes = "invalid"
	}
	return f.Path("overlays", hexes+".json")
}

func readCapped(name string) ([]byte, error) {
	f, err := ownfiles.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && len(data) > limit {
		err = fmt.Errorf("%s has more than the possible %d bytes", name, limit)
	}
	return data, err
}

// write replaces a file that says something else. An unchanged node writes
// nothing, so that it does not wear its disk out, nor need room on it.
func write(name string, data []byte) error {
	if old, err := readCapped(name); err == nil && bytes.Equal(old, data) {
		return durable.SyncDir(filepath.Dir(name)) // whoever wrote it may have been killed before this
	}
	return durable.WriteFile(name, data, 0o600)
}
