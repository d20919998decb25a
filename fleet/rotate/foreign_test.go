// SPDX-License-Identifier: Apache-2.0

package rotate

import (
	"crypto"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
)

// TestBetweenTheftAndRevocation: whatever its publisher wrote over what a thief gave out, no node goes
// back to that after the key is revoked, and nodes go back to what was there before the thief.
func TestBetweenTheftAndRevocation(t *testing.T) {
	for what, between := range map[string]func(r *rotated, layer string) error{
		"nothing": func(*rotated, string) error { return nil },
		"refresh": func(r *rotated, _ string) error { _, err := r.Refresh(t.Context(), publish.Lists{}); return err },
		"publish": func(r *rotated, layer string) error {
			_, err := r.Publish(t.Context(), r.Policy, r.Nodes(layer, "30", "30", "30"), publish.Options{LayerNamed: true})
			return err
		},
		"freeze of one": func(r *rotated, _ string) error {
			_, err := hold.Freeze(t.Context(), r.Publisher, hold.Order{Nodes: []string{r.Nodes("", "1")[0].Name}, By: publish.By{Author: "eve", Reason: "why"}})
			if err == nil {
				_, err = hold.Forward(t.Context(), r.Publisher, hold.Order{All: true})
			}
			return err
		},
		"publish, and refresh": func(r *rotated, layer string) error {
			_, err := r.Publish(t.Context(), r.Policy, r.Nodes(layer, "30", "30", "30"), publish.Options{LayerNamed: true})
			if err == nil {
				r.Now = r.Now.Add(time.Minute)
				_, err = r.Refresh(t.Context(), publish.Lists{})
			}
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRotated(t, "", nil)
			layer := r.following("1")
			give := func(p *publish.Publisher, value string) {
				t.Helper()
				r.Now = r.Now.Add(time.Minute)
				p.Now = r.Now
				_, err := p.Publish(t.Context(), r.Policy, r.Nodes(layer, value, value, value), publish.Options{LayerNamed: true})
				must(t, err)
			}
			give(r.Publisher, "20")
			thief := *r.Publisher // who has the key, and another memory
			var err error
			thief.Memory, err = published.OpenMemory(filepath.Join(t.TempDir(), "memory"))
			must(t, err)
			give(&thief, "97")
			give(&thief, "98")
			r.Now = r.Now.Add(time.Minute)
			must(t, between(r, layer))
			r.Now = r.Now.Add(time.Minute)
			must(t, r.goOn(t.Context(), []crypto.Signer{r.fresh}, operators(true, r.fresh)))
			r.Signers = []crypto.Signer{r.fresh}
			give(r.Publisher, "40")
			must(t, r.rollsBack(""))
			if got := strings.Fields(r.Values()); got[0] != "20" || got[1] != "20" || got[2] != "20" {
				t.Errorf("rolled back: %s", got)
			}
			r.IsGreen(r.Values())
		})
	}
}

// TestSignedAgainByAStolenKey: a generation of one's own that a revoked key signed again elsewhere, as
// another publisher's refresh does, counts as foreign: under its number a thief may have changed it.
func TestSignedAgainByAStolenKey(t *testing.T) {
	r := newRotated(t, "", nil)
	layer := r.following("1")
	give := func(value string) {
		t.Helper()
		r.Now = r.Now.Add(time.Minute)
		_, err := r.Publish(t.Context(), r.Policy, r.Nodes(layer, value, value, value), publish.Options{LayerNamed: true})
		must(t, err)
	}
	give("20")
	other := *r.Publisher
	var err error
	other.Memory, err = published.OpenMemory(filepath.Join(t.TempDir(), "memory"))
	must(t, err)
	for range 11 { // overlays are signed again in the last third of their month
		r.Now = r.Now.Add(48 * time.Hour)
		other.Now = r.Now
		_, err = other.Refresh(t.Context(), publish.Lists{})
		must(t, err)
	}
	r.Now = r.Now.Add(time.Minute)
	must(t, r.goOn(t.Context(), []crypto.Signer{r.fresh}, operators(true, r.fresh)))
	r.Signers = []crypto.Signer{r.fresh}
	f, err := r.Read(t.Context(), r.Policy)
	must(t, err)
	if last := (published.Generation{Epoch: f.Floor().Epoch, Number: f.Floor().Generation}); !f.Foreign(last) {
		t.Errorf("generation %s counts as one of this publisher", last)
	}
	give("40")
	must(t, r.rollsBack(""))
	if got := r.Values(); strings.Contains(got, "20") {
		t.Errorf("rolled back to %s", got)
	}
	r.IsGreen(r.Values())
}
