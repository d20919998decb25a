// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/fleet/evidence"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/sandbox"
)

// Statement returns what may be signed of a rehearsal between two kept ends: also of one that
// failed, so that it takes the place of an earlier one that passed.
func (a *Answer) Statement(from, to *sandbox.Kept, on evidence.Machine, version string, now time.Time) (r evidence.Rehearsal, err error) {
	r = evidence.Rehearsal{Fleet: to.Overlay.Fleet, Result: evidence.Passed, Said: a.Said, Happened: a.Happened,
		Machine: on, Version: version, IssuedAt: now}
	switch err := a.Err(); {
	case errors.Is(err, cli.ErrFailed):
		r.Result, r.Reason = evidence.Failed, plain.Line(a.Reason)
	case err != nil:
		r.Result = evidence.Differs
		if !a.AsSaid() {
			r.Reason = fmt.Sprintf("class %s said, %s happened; ", a.Said, a.Happened)
		}
		r.Reason += fmt.Sprintf("%d did not come back", len(a.Left))
		for _, d := range a.Left[:min(1, len(a.Left))] {
			r.Reason += ": " + plain.Line(d.Kind+" "+d.Key)
		}
	}
	if r.From, err = evidence.EndOf(from.Overlay); err == nil {
		r.To, err = evidence.EndOf(to.Overlay)
	}
	return r, err
}
