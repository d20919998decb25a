// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// maxBook caps the book, in bytes; an overlay has at most half of that.
const maxBook = 4 << 20

// Book holds the recent corrections and the quarantines.
type Book struct {
	path  string
	pages pages
	dirty bool
}

// pages is the book as it is written.
type pages struct {
	Boot    string    `json:"boot"`    // of the times of corrections
	Overlay string    `json:"overlay"` // digest of the one whose settings these are
	Keys    []*record `json:"keys"`
}

// record holds the history of one setting.
type record struct {
	Item        string          `json:"item"`
	Key         string          `json:"key"`
	Want        string          `json:"want"`
	Corrections []time.Duration `json:"corrections,omitempty"` // since the kernel's start, oldest first
	Rival       string          `json:"rival,omitempty"`
	Quarantined time.Time       `json:"quarantined,omitzero"` // since when; zero: it is not
	Count       int             `json:"count,omitempty"`      // of corrections before that
}

// Open reads the book of a state directory. Boot is the identity of the running
// kernel: times of another one mean nothing, a quarantine goes on. With an error
// there is an empty book all the same.
func Open(dir, boot string) (*Book, error) {
	b := &Book{path: filepath.Join(dir, paths.Corrections), pages: pages{Boot: boot}}
	data, err := ownfiles.ReadFile(b.path, maxBook)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return b, err
	}
	var p pages
	if err := json.Unmarshal(data, &p); err != nil {
		return b, fmt.Errorf("read %s: %w", b.path, err)
	}
	p.Keys = slices.DeleteFunc(p.Keys, func(r *record) bool { return r == nil })
	if p.Boot != boot {
		p.Boot = boot
		for _, r := range p.Keys {
			r.Corrections = nil
		}
	}
	b.pages = p
	return b, nil
}

// Save writes the book down when it has changed.
func (b *Book) Save() error {
	if !b.dirty {
		return nil
	}
	data, err := json.Marshal(b.pages)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(b.path, data, 0o600); err != nil {
		return err
	}
	b.dirty = false
	return nil
}

// Blank reports whether no overlay is in effect: what differs from one was never set.
func (b *Book) Blank() bool { return b.pages.Overlay == "" }

// Begin says which overlay is in effect on a root that came up: under another one
// than before all settings are counted again.
func (b *Book) Begin(overlay string) error {
	if b.pages.Overlay != overlay {
		b.pages.Overlay, b.pages.Keys, b.dirty = overlay, nil, true
	}
	return b.Save()
}

// Keep says which overlay is in effect after a run that changed none of its settings.
func (b *Book) Keep(overlay string) error {
	if b.pages.Overlay != overlay {
		b.pages.Overlay, b.dirty = overlay, true
	}
	return b.Save()
}

// Move says which overlay is in effect after a live change, which kinds of settings are
// others in it, and the drift that is left. Of those kinds only what is quarantined and
// still differs stays so: the rest may be wanted otherwise now, or not at all.
func (b *Book) Move(overlay string, kinds []string, drift []spec.Drift) error {
	b.pages.Keys = slices.DeleteFunc(b.pages.Keys, func(r *record) bool {
		gone := slices.Contains(kinds, r.Item) && !slices.ContainsFunc(drift, func(d spec.Drift) bool {
			return d.Item == r.Item && d.Key == r.Key && d.Action == spec.ActionQuarantine && d.From != d.To
		})
		b.dirty = b.dirty || gone
		return gone
	})
	return b.Keep(overlay)
}

// Clear ends the quarantine of what is named, an empty key being all of a kind and an
// empty item everything, and counts its corrections again. It returns what was
// quarantined.
func (b *Book) Clear(item, key string) (ended []spec.Drift) {
	b.pages.Keys = slices.DeleteFunc(b.pages.Keys, func(r *record) bool {
		if item != "" && (r.Item != item || key != "" && r.Key != key) {
			return false
		}
		if !r.Quarantined.IsZero() {
			ended = append(ended, r.drift())
		}
		b.dirty = true
		return true
	})
	return ended
}

func (b *Book) find(item, key string) *record {
	if i := slices.IndexFunc(b.pages.Keys, func(r *record) bool { return r.Item == item && r.Key == key }); i >= 0 {
		return b.pages.Keys[i]
	}
	return nil
}

func (b *Book) forget(item, key string) {
	n := len(b.pages.Keys)
	b.pages.Keys = slices.DeleteFunc(b.pages.Keys, func(r *record) bool { return r.Item == item && r.Key == key })
	b.dirty = b.dirty || n != len(b.pages.Keys)
}

// drift is a quarantined setting that is as wanted at the moment.
func (r *record) drift() spec.Drift {
	return spec.Drift{Item: r.Item, Key: r.Key, From: r.Want, To: r.Want, Action: spec.ActionQuarantine,
		Since: r.Quarantined, Count: r.Count, Rival: cmp.Or(r.Rival, spec.RivalUnknown)}
}
