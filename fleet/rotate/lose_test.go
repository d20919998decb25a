// SPDX-License-Identifier: Apache-2.0

package rotate

import (
	"crypto"
	"crypto/ecdsa"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// TestRotateLosesNobody: a rotation is refused, before anything is written, that loses nodes
// which the operator did not name.
func TestRotateLosesNobody(t *testing.T) {
	const older, unchained = "the agent of their layer does not follow the keys", "their boot files begin no chain"
	told := map[string]*spec.KeysKnown{"n1": nil, "n2": {Version: 1, BootFiles: 1, Forgets: true}}
	for name, c := range map[string]struct {
		follows bool   // the agents of the layers do
		stays   bool   // the operator of before, beside the other one
		by      string // who sign: of before, and the other one
		epoch   bool   // another epoch key counts, at epoch 1
		lower   bool   // of two operators that have to sign, one has to
		known   map[string]*spec.KeysKnown
		lose    []string
		want    string // of the error; "" is none
	}{
		"the key of before leaves":          {by: "both", want: "n0 n1 n2: " + older},
		"and may lose one":                  {by: "both", lose: []string{"n1"}, want: "n0 n2: " + older},
		"and may lose all":                  {by: "both", lose: []string{"n0", "n1", "n2"}},
		"whom nobody knows":                 {by: "both", lose: []string{"n7"}, want: `"n7", which may be lost, is not published`},
		"it stays and signs":                {stays: true, by: "both"},
		"it stays and signs no more":        {stays: true, by: "other", want: older},
		"all follow the keys":               {follows: true, by: "other"},
		"one of them has nothing to follow": {follows: true, by: "other", known: told, want: "n1: " + unchained},
		"but the key stays":                 {follows: true, by: "both", stays: true, known: told},
		"older ones tell nothing":           {by: "both", known: told, lose: []string{"n0", "n2", "n1"}},
		"another epoch key":                 {stays: true, by: "both", epoch: true, want: older},
		"another epoch key, all follow":     {follows: true, stays: true, by: "both", epoch: true},
		"fewer have to sign":                {stays: true, by: "other", lower: true, want: older},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotated(t, "", nil)
			layer := r.Layer("1", "", r.Release).Digest
			if c.follows {
				layer = r.following("1")
			}
			o := publish.Options{LayerNamed: true}
			if c.epoch {
				o.Epoch, o.EpochKey = 1, r.Top
			}
			_, err := r.Publish(t.Context(), r.Policy, r.Nodes(layer, "10", "10", "10"), o)
			must(t, err)
			if c.lower {
				must(t, r.goOn(t.Context(), []crypto.Signer{r.Operator, r.fresh}, func(next *published.Policy, rotation *Rotation) {
					operators(false, r.Operator, r.fresh)(next, rotation)
					next.Threshold = 2
				}))
			}
			version := r.Policy.Chain.Version()
			by := map[string][]crypto.Signer{"both": {r.Operator, r.fresh}, "other": {r.fresh}}[c.by]
			err = r.goOn(t.Context(), by, func(next *published.Policy, rotation *Rotation) {
				keys := []*ecdsa.PrivateKey{r.fresh}
				if c.stays {
					keys = append(keys, r.Operator)
				}
				operators(false, keys...)(next, rotation)
				if rotation.Known, rotation.Lose = c.known, c.lose; c.lower {
					next.Threshold = 1
				}
				if c.epoch {
					top := newKey(t)
					next.Epoch, rotation.Epoch = []sign.Verifier{sign.VerifierOf(top)}, top
				}
			})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if newest, _, e := r.NewestKeys(t.Context()); e != nil || err != nil && newest != version {
				t.Errorf("version %d is published, %v", newest, e)
			}
		})
	}
}
