// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
)

const (
	maxLine  = 64 << 10 // of one node
	maxNodes = 200_000
)

// ReadReports reads what a fleet's service answers at /v1/reports: one [view.Reported]
// a line.
func ReadReports(r io.Reader) (map[string]Report, error) {
	all := map[string]Report{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var one view.Reported
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("reports of nodes: %w", err)
		}
		if all[one.Node] = FromReport(one); len(all) > maxNodes {
			return nil, fmt.Errorf("reports of nodes: there are more than %d", maxNodes)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reports of nodes: %w", err)
	}
	return all, nil
}

// FromReport returns what a rollout wants to know of a node's report. Times in it are
// by the node's clock; one that is later than when it was received is not used.
func FromReport(r view.Reported) Report {
	out := Report{At: r.Received, Listens: r.Listens, Interval: time.Duration(r.Interval) * time.Second, Overlay: r.Overlay, Pinned: r.Grade == spec.KeyPinned}
	if r.Staged == r.Overlay {
		out.Overlay = "" // its layer waits for a reboot: it has not arrived
	}
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
	if out.Well.After(r.Received) {
		out.Well = r.Received
	}
	return out
}

func join(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + ": " + detail
}
