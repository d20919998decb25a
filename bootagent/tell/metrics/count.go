// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// CountCorrections counts settings that were found changed and are right again. What
// the last look found was counted then.
func CountCorrections(c *state.Counts, changes, last []spec.Drift) {
	for _, d := range changes {
		add(&c.Corrections, d.Item)
		if !has(last, d) {
			add(&c.Drift, d.Item)
		}
	}
}

// CountDrift counts what a look found that the last one had not.
func CountDrift(c *state.Counts, found, last []spec.Drift) {
	for _, d := range found {
		switch d.Action {
		case spec.ActionDefer, spec.ActionCannot, spec.ActionRefuse, spec.ActionFailed, spec.ActionRun:
		default:
			if !has(last, d) {
				add(&c.Drift, d.Item)
			}
		}
	}
}

// NoteArtifacts notes what runs, and since when.
func NoteArtifacts(c *state.Counts, st *spec.Status, now time.Time) {
	for slot, digest := range map[string]string{"overlay": st.Overlay, "layer": st.Layer} {
		if digest == "" || c.Artifacts[slot].Digest == digest {
			continue
		}
		if c.Artifacts == nil {
			c.Artifacts = map[string]state.Artifact{}
		}
		c.Artifacts[slot] = state.Artifact{Digest: digest, Since: now.Unix()}
	}
}

// CountTransition counts a decision that changed something.
func CountTransition(c *state.Counts, name string) { add(&c.Transitions, name) }

// CountFetch counts how the registry answered: err is what came of asking it.
func CountFetch(c *state.Counts, err error, now time.Time) {
	switch {
	case err == nil:
		c.Verified = now.Unix()
		add(&c.Fetches, "ok")
	case refusal.Of(err) != "":
		add(&c.Fetches, "refused")
	default:
		add(&c.Fetches, "unreachable")
	}
}

func has(list []spec.Drift, d spec.Drift) bool {
	return slices.ContainsFunc(list, func(e spec.Drift) bool { return e.Item == d.Item && e.Key == d.Key })
}

func add(to *map[string]uint64, key string) {
	if *to == nil {
		*to = map[string]uint64{}
	}
	(*to)[key]++
}
