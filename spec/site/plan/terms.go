// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Terms are what a publish signs beside overlays. Who agrees to a plan agrees to them.
type Terms struct {
	Registry  string         `json:"registry"`  // where it is pushed
	Lifetime  int64          `json:"lifetime"`  // of signatures, in seconds
	Threshold int            `json:"threshold"` // keys that have to sign
	Rollouts  []RolloutTerms `json:"rollouts"`
}

// RolloutTerms are a Rollout of the site, by which caisson-kube publishes, and 'caisson rollout'.
type RolloutTerms struct {
	Name  string           `json:"name"`
	Rule  spec.RolloutRule `json:"rule"`
	Waves []WaveTerms      `json:"waves"` // if all of its nodes changed
}

// WaveTerms are the nodes of one wave.
type WaveTerms struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
}

func (t *Terms) write(w io.Writer) {
	life := (time.Duration(t.Lifetime) * time.Second).String()
	if days := t.Lifetime / (24 * 60 * 60); days > 0 && t.Lifetime%(24*60*60) == 0 {
		life = plain.Count(int(days), "day")
	}
	fmt.Fprintf(w, "to be signed by %s, for %s, in %s\n", plain.Count(t.Threshold, "key"), life, t.Registry)
	for _, r := range t.Rollouts {
		var waves []string
		for _, one := range r.Waves {
			waves = append(waves, fmt.Sprintf("%s (%s)", one.Name, plain.Some(one.Nodes, shown)))
		}
		fmt.Fprintf(w, "rollout %s: waves %s\n", r.Name, strings.Join(waves, ", "))
	}
}
