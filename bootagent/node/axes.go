// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// setHealth says what is worst about a node that is not ok, and since when it is as
// it is, where that was noted.
func (n *Node) setHealth(st *spec.Status) {
	if st.Health != spec.HealthOK {
		st.HealthDetail = worst(st)
	}
	if n.boot.Live.Health == st.Health {
		st.HealthSince = stamp(n.boot.Live.HealthSince)
	}
}

// worst is the first thing that keeps a node from being ok.
func worst(st *spec.Status) string {
	for _, i := range st.Items {
		if i.State == spec.ItemDegraded {
			return i.Error
		}
	}
	for _, d := range st.Drift {
		if d.Action == spec.ActionRefuse {
			d = rules.Spelled(d)
			return d.Item + " " + d.Key + ": " + d.Reason
		}
	}
	return ""
}

// setActivity says what the node is at: what runs before what waits, and a node that
// only waits for one thing before one that waits for several by name of the first.
func (n *Node) setActivity(st *spec.Status, soaks time.Time) {
	in := func(state spec.OperationState) *spec.OperationStatus {
		if i := slices.IndexFunc(st.Operations, func(o spec.OperationStatus) bool { return o.State == state }); i >= 0 {
			return &st.Operations[i]
		}
		return nil
	}
	staging, since := n.staging()
	swap := swapStatus(st.Operations)
	switch running, waiting := in(spec.OperationRunning), in(spec.OperationWaiting); {
	case running != nil:
		st.Activity, st.ActivitySince = spec.ActivityRunning(running.Name), running.Since
	case st.Trial != nil && st.Trial.Left > 0:
		st.Activity, st.ActivityDetail, st.ActivitySince = spec.ActivityWaiting("confirm"), fmt.Sprintf("generation %d is undone in %d s", st.Trial.Generation, st.Trial.Left), st.Trial.Since
	case len(st.Checks) > 0:
		st.Activity, st.ActivityDetail, st.ActivityUntil = spec.ActivitySoaking, fmt.Sprintf("generation %d has to pass its gates", st.Generation), soaks
	case staging:
		st.Activity, st.ActivityDetail, st.ActivitySince = spec.ActivityStaging, "fetches the layer of overlay "+st.Staged, since
	case st.Pause != nil:
		st.Activity, st.ActivityDetail, st.ActivityUntil = spec.ActivityWaiting("resume"), sayPause(&spec.Hold{Author: st.PausedBy, Reason: st.Pause.Reason}), stamp(st.Pause.Until)
	case st.Staged != "" && swap != nil && swap.State == spec.OperationWaiting:
		st.Activity, st.ActivityDetail, st.ActivityUntil = spec.ActivityWaiting(cmp.Or(swap.For, swap.Name)), "overlay "+st.Staged+" is staged; "+swap.Name+": "+swap.Detail, swap.Next
	case st.Staged != "" && st.Staged == st.Overlay:
		st.Activity, st.ActivityDetail = spec.ActivityWaiting("reboot"), n.sayStaged("the layer of overlay "+st.Staged)
	case st.Staged != "":
		st.Activity, st.ActivityDetail = spec.ActivityWaiting("reboot"), n.sayStaged("overlay "+st.Staged)
	case waiting != nil:
		st.Activity, st.ActivityUntil = spec.ActivityWaiting(cmp.Or(waiting.For, waiting.Name)), waiting.Next
		st.ActivityDetail = waiting.Name + ": " + waiting.Detail
	default:
		st.Activity = spec.ActivityIdle
	}
	if st.ActivitySince.IsZero() && n.boot.Live.Activity == st.Activity {
		st.ActivitySince = stamp(n.boot.Live.ActivitySince)
	}
}

// sayStaged says of what is staged how the node gets there, where that is known.
func (n *Node) sayStaged(what string) string {
	return strings.TrimSuffix(what+" is staged: "+n.sayMove(), ": ")
}

// noteAxes notes since when health and activity are as they are.
func (n *Node) noteAxes(st *spec.Status) {
	now := time.Now().Unix()
	live := &n.boot.Live
	if live.Health != st.Health {
		live.Health, live.HealthSince = st.Health, now
		st.HealthSince = stamp(now)
	}
	if live.Activity != st.Activity {
		live.Activity, live.ActivitySince = st.Activity, now
		if st.ActivitySince.IsZero() {
			st.ActivitySince = stamp(now)
		}
	}
}

// staging reports whether a process brings a layer to the disk, and since when. It
// holds a lock while it does, so that one that was killed is not seen.
func (n *Node) staging() (bool, time.Time) {
	f, err := os.Open(n.path(paths.RunStaging))
	if err != nil {
		return false, time.Time{} // nothing was staged since this boot, or only root may know
	}
	defer f.Close() // only read
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return false, time.Time{}
	}
	info, err := f.Stat()
	if err != nil {
		return true, time.Time{}
	}
	return true, info.ModTime().UTC().Truncate(time.Second)
}

// holdStaging says to other processes that a layer is being fetched, until release.
// One that is at it already keeps it so.
func (n *Node) holdStaging() (release func(), err error) {
	f, err := os.OpenFile(n.path(paths.RunStaging), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	release = func() { f.Close() } // which ends the lock
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return release, nil
	case err != nil:
		release()
		return nil, err
	}
	now := time.Now()
	if err := os.Chtimes(f.Name(), now, now); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// stamp is a time of the status, the zero one where it is not known.
func stamp(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
