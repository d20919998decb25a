// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Differences says how one layer differs from another, by digest; nil is not at all.
// Layers that nobody released are errors.
type Differences interface {
	Between(ctx context.Context, from, to string) (*release.Difference, error)
}

// Layer is a layer in use.
type Layer struct {
	view.LayerUse
	Difference *release.Difference `json:"difference,omitempty"` // from the layer that most nodes run
	More       int                 `json:"more,omitempty"`       // packages that differ and are not listed
	MoreUsers  int                 `json:"moreAccounts,omitempty"`
	Trouble    string              `json:"trouble,omitempty"` // why the difference is not known
}

// AccountsAlike reports whether two layers have the same accounts and others in them, as a
// key or a password.
func (l Layer) AccountsAlike() bool {
	return len(l.Difference.Accounts) == 0 && slices.ContainsFunc(l.Difference.Images,
		func(i release.ImageChange) bool { return i.Name == spec.ImageAccounts })
}

// Size returns what a node with the one fetches for the other, for people.
func (l Layer) Size() string { return plain.Bytes(l.Difference.Bytes) }

// Layers holds what GET /v1/layers answers.
type Layers struct {
	Base   string  `json:"base,omitempty"` // the layer that most nodes run; the others are compared with it
	Layers []Layer `json:"layers"`
}

const (
	maxCompared = 20               // layers: nodes may report any
	maxPackages = 200              // of one layer; and of accounts
	comparing   = 10 * time.Second // what takes longer is there the next time
)

// layers compares the layers in use.
func (s *Server) layers(ctx context.Context) Layers {
	ctx, cancel := context.WithTimeout(ctx, comparing)
	defer cancel()
	out := Layers{Layers: []Layer{}}
	for i, use := range s.fleet().Summary().Layers { // the one that most nodes run is the first
		l := Layer{LayerUse: use}
		switch {
		case i == 0 && use.Running > 0:
			out.Base = use.Layer
		case s.o.Layers == nil || out.Base == "":
		case i > maxCompared:
			l.Trouble = "it is compared only where fewer layers are in use"
		default:
			d, err := s.o.Layers.Between(ctx, out.Base, use.Layer)
			if err != nil {
				l.Trouble = err.Error()
			} else if d != nil {
				cut := *d
				l.More = max(0, len(d.Packages)-maxPackages)
				cut.Packages = d.Packages[:min(len(d.Packages), maxPackages)]
				l.MoreUsers = max(0, len(d.Accounts)-maxPackages)
				cut.Accounts = d.Accounts[:min(len(d.Accounts), maxPackages)]
				l.Difference = &cut
			}
		}
		out.Layers = append(out.Layers, l)
	}
	return out
}
