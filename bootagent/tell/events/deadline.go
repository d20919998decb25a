// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/blackbox"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Deadline notes in the black box that the boot of a new generation is ended, since
// it did not prove itself: what systemd waits for, what failed, and the console. It takes
// no lock, whose owner may be what hangs. id is that of this boot.
func Deadline(ctx context.Context, root, id string) error {
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
	generation := boot.Generation
	if a := boot.Live.Applied; a != nil {
		generation = *a
	}
	e := of(generation, id, spec.Event{Event: spec.EventDeadline, Why: why, Did: "started the machine over", Console: blackbox.Console(Kmsg)})
	return blackbox.At(filepath.Join(root, paths.State, blackbox.Name)).Add(e)
}
