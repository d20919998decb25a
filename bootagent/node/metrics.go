// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/metrics"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/rules"
)

// Why a change was made that no operator and no new generation asked for.
const (
	whyBoot  = "boot"  // the root has just come up: what it lacks is set
	whyAgain = "again" // all was put back before
	whyDrift = "drift" // it was right before
)

// cause says which of these a run of the present overlay is for.
func (n *Node) cause(inEffect bool) string {
	switch {
	case !n.begun():
		return whyBoot
	case !inEffect:
		return whyAgain
	}
	return whyDrift
}

// countCorrections counts settings that were found changed and are right again. What
// an earlier look found was counted by that.
func (n *Node) countCorrections(changes []spec.Drift, last []spec.Drift) {
	c := &n.boot.Live.Counts
	for _, d := range changes {
		add(&c.Corrections, d.Item)
		if !found(last, d) {
			add(&c.Drift, d.Item)
		}
	}
}

// count counts what a look found that the one before had not.
func (n *Node) count(st *spec.Status, last []spec.Drift) {
	c := &n.boot.Live.Counts
	for _, d := range st.Drift {
		switch d.Action {
		case spec.ActionDefer, spec.ActionCannot, spec.ActionRefuse, spec.ActionFailed, spec.ActionRun:
		default:
			if n.begun() && !found(last, d) {
				add(&c.Drift, d.Item)
			}
		}
	}
	for slot, digest := range map[string]string{"overlay": st.Overlay, "layer": st.Layer} {
		if digest == "" || c.Artifacts[slot].Digest == digest {
			continue
		}
		if c.Artifacts == nil {
			c.Artifacts = map[string]state.Artifact{}
		}
		c.Artifacts[slot] = state.Artifact{Digest: digest, Since: time.Now().Unix()}
	}
}

// countFetch counts how the registry answered.
func (n *Node) countFetch(err error) {
	c := &n.boot.Live.Counts
	switch {
	case err == nil:
		c.Verified = time.Now().Unix()
		add(&c.Fetches, "ok")
	case refusal.Of(err) != "":
		add(&c.Fetches, "refused")
	default:
		add(&c.Fetches, "unreachable")
	}
}

func found(list []spec.Drift, d spec.Drift) bool {
	return slices.ContainsFunc(list, func(e spec.Drift) bool { return e.Item == d.Item && e.Key == d.Key })
}

func add(to *map[string]uint64, key string) {
	if *to == nil {
		*to = map[string]uint64{}
	}
	(*to)[key]++
}

// publishMetrics writes the metrics where the overlay wants them, and removes them
// where it does not want them any more, or wants them where they must not be.
func (n *Node) publishMetrics(found *track.Found, st *spec.Status) error {
	var want spec.Metrics
	var wrong error
	if a := found.Overlay.Agent; a != nil && a.Metrics != nil {
		if want, wrong = *a.Metrics, rules.Metrics(*a.Metrics); wrong != nil {
			want, wrong = spec.Metrics{}, fmt.Errorf("agent.metrics of the overlay: %w", wrong)
		}
	}
	return errors.Join(wrong, n.writeMetrics(want, found, st))
}

func (n *Node) writeMetrics(want spec.Metrics, found *track.Found, st *spec.Status) error {
	if err := n.moveMetrics(want.File); err != nil {
		return err
	}
	if want == (spec.Metrics{}) {
		return errors.Join(n.o.listen(""), durable.Remove(n.path(paths.RunMetrics)))
	}
	text := metrics.Text(&metrics.Facts{Now: time.Now(), Status: st, Maintenance: found.Overlay.Maintenance, Counts: n.boot.Live.Counts})
	err := durable.WriteFile(n.path(paths.RunMetrics), text, 0o644)
	if want.File != "" {
		fileErr := in(n.path(want.File), func(dir safepath.Dir, name string) error {
			return dir.Put(name, safepath.Thing{Mode: unix.S_IFREG | 0o644, UID: os.Geteuid(), GID: os.Getegid(), Content: text})
		})
		if fileErr != nil {
			err = errors.Join(err, fmt.Errorf("write metrics to %s: %w", want.File, fileErr))
		}
	}
	return errors.Join(err, n.o.listen(want.Listen))
}

// in does something in the directory of a path, which may belong to who collects.
func in(path string, do func(dir safepath.Dir, name string) error) error {
	var walk safepath.Walk
	defer walk.Close()
	dir, err := walk.Hold(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() // what matters was synced
	return do(dir, filepath.Base(path))
}

// moveMetrics removes the file that metrics were written to before, and notes to
// which they are written from now on.
func (n *Node) moveMetrics(to string) error {
	s, err := n.folder.Load()
	if err != nil || s.MetricsFile == to {
		return err
	}
	if s.MetricsFile != "" {
		if err := in(n.path(s.MetricsFile), safepath.Dir.Remove); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove metrics from %s: %w", s.MetricsFile, err)
		}
	}
	s.MetricsFile = to
	return n.folder.Save(s)
}
