// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/record/track"
)

// signed returns the scripts of every overlay that is kept and verified.
func (ef *Effect) signed() []exec.Signed {
	if ef.Tracker == nil {
		return nil
	}
	kept, err := ef.Tracker.Kept()
	if err != nil {
		ef.Say("%v", err)
	}
	var scripts []exec.Signed
	for _, a := range kept {
		for _, w := range a.Overlay.Items.Exec {
			scripts = append(scripts, exec.Signed{Script: w, Secrets: a.Overlay.Secrets})
		}
	}
	return scripts
}

// Reverting returns the digests of the overlays whose scripts are still to be
// taken back: without their signature no revert script runs.
func (ef *Effect) Reverting() []string {
	pending := map[string]bool{}
	for _, e := range ef.Journal.Entries(exec.Name) {
		pending[e.Key] = true
	}
	if len(pending) == 0 || ef.Tracker == nil {
		return nil
	}
	kept, err := ef.Tracker.Kept()
	if err != nil {
		ef.Say("%v", err)
	}
	var digests []string
	for _, a := range kept {
		for _, w := range a.Overlay.Items.Exec {
			if key := exec.Key(w, a.Overlay.Secrets); w.Revert != "" && pending[key] {
				digests = append(digests, a.Digest)
				delete(pending, key) // the newest overlay that has it is enough
			}
		}
	}
	return digests
}

// LastRun returns the last run of a script of a generation and what it printed.
func (ef *Effect) LastRun(found *track.Found, name string) (*exec.Last, error) {
	for _, it := range ef.Items(found) {
		if scripts, ok := it.(*exec.Item); ok {
			return scripts.Last(name)
		}
	}
	return nil, nil // the table has scripts
}
