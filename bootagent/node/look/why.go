// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/spec"
)

// Why says what is wrong with this node. A node that cannot say what it runs still has
// its black box.
func (l *Look) Why(ctx context.Context) (spec.Why, error) {
	events, trouble := l.Box().Events()
	if l.Unbound != nil {
		return spec.Why{}, l.Unbound
	}
	st, err := l.Status(ctx)
	if err != nil {
		if errors.Is(err, track.ErrNothing) {
			err = nil
		}
		st = say.Nothing(l.Boot, l.Tracker.Bootstrap.Fleet, err)
	}
	return say.Why(st, l.Boot, events, trouble), nil
}

// ForFleet returns what this node tells its fleet of a status, and where it goes; nil
// where its overlay says nothing of reports.
func (l *Look) ForFleet(found *track.Found, st *spec.Status) (*spec.Report, *spec.Reporting, error) {
	to, err := say.Reporting(&found.Overlay)
	if to == nil || err != nil {
		return nil, nil, err
	}
	r := say.Report(st, to, found.Overlay.Maintenance, time.Now())
	if t, err := l.Trace(found); err == nil { // a report says more without its boot than none
		r.SetBoot(t)
	}
	return r, to, nil
}
