// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// FromReport returns what a rollout wants to know of a node's report. Times in it are
// by the node's clock; what is later than when it was received is not believed.
func FromReport(r *spec.Report, received time.Time) Report {
	out := Report{At: received, Overlay: r.Overlay, Pinned: r.Grade == spec.KeyPinned}
	if state, code, refused := strings.Cut(r.Axes.Sync.State, ":"); refused && state == "refused" {
		out.Refused = join(code, r.Axes.Sync.Detail)
	}
	if what, waits := strings.CutPrefix(r.Axes.Activity.State, string(spec.ActivityWaiting(""))); waits {
		out.Waiting = join(what, r.Axes.Activity.Detail)
	}
	if r.Axes.Health.State != string(spec.HealthOK) {
		out.Trouble = join(r.Axes.Health.State, r.Axes.Health.Detail)
		return out
	}
	out.Well = later(r.Axes.Health.Since, r.Axes.Sync.Since)
	if out.Well.After(received) {
		out.Well = received
	}
	return out
}

func join(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + ": " + detail
}
