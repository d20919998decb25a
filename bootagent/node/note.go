// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/blackbox"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// kmsg is the kernel's log.
const kmsg = "/dev/kmsg"

// note puts an event into the black box, once a boot: what fails every five minutes must
// not write over what was before. That it could not be noted is said, and changes nothing
// else.
func (n *Node) note(g state.Generation, err error, e spec.Event) {
	if n.lock == nil {
		return // only looking
	}
	e.Time, e.Boot = time.Now().UTC().Truncate(time.Second), n.scopes.Kernel
	e.Generation, e.Epoch, e.Overlay, e.Layer = g.Generation, g.Epoch, g.Overlay, g.Layer
	if err != nil {
		e = blackbox.Blame(e, err)
		if item, key := items.Culprit(err); item != "" {
			e.Item, e.Key = item, key
		}
	}
	box := blackbox.At(n.folder.Path(blackbox.Name))
	before, err := box.Events()
	if err == nil && !slices.ContainsFunc(before, func(b spec.Event) bool {
		return b.Boot == e.Boot && b.Event == e.Event && b.Overlay == e.Overlay && b.Code == e.Code && (b.Why == e.Why || e.Event == spec.EventRefused)
	}) {
		err = box.Add(e)
	}
	if err != nil {
		n.o.Say("%v", err)
	}
}

// noteUp notes once that this boot came up, and as what.
func (n *Node) noteUp(st *spec.Status, g state.Generation) {
	if n.boot.Live.Up {
		return
	}
	n.boot.Live.Up = true
	e := spec.Event{Event: spec.EventUp, Why: "health " + string(st.Health)}
	if detail := worst(st); detail != "" {
		e.Why += ": " + detail
	}
	n.note(g, nil, e)
}

// NoteDeadline notes in the black box that the boot of a new generation is ended, since
// it did not prove itself: what systemd waits for, what failed, and the console. It takes
// no lock, whose owner may be what hangs.
func NoteDeadline(ctx context.Context, root string) error {
	boot, err := state.LoadRecord(root)
	if err != nil {
		return err
	}
	why := "it did not prove itself in time"
	if root == "" && process.SystemdRuns() {
		failed, starting, err := process.Manager{}.Trouble(ctx)
		for _, w := range []struct {
			what  string
			units []string
		}{{"failed", failed}, {"still starting", starting}} {
			if len(w.units) > 0 {
				why += fmt.Sprintf("; %s: %s", w.what, strings.Join(w.units, ", "))
			}
		}
		if err != nil {
			why += fmt.Sprintf("; %v", err)
		}
	}
	id, err := kernelID()
	if err != nil {
		return err
	}
	g := boot.Generation
	e := spec.Event{Time: time.Now().UTC().Truncate(time.Second), Boot: id, Event: spec.EventDeadline, Why: why, Did: "started the machine over",
		Generation: g.Generation, Epoch: g.Epoch, Overlay: g.Overlay, Layer: g.Layer, Console: blackbox.Console(kmsg)}
	return blackbox.At(filepath.Join(root, paths.State, blackbox.Name)).Add(e)
}
