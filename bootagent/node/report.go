// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/caisson-os/caisson/bootagent/tell/report"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Report returns what this node tells its fleet of a status, and where it goes; nil
// where its overlay says nothing of reports.
func (n *Node) Report(st *spec.Status) (*spec.Report, *spec.Reporting, error) {
	found, err := n.effect.Running()
	if err != nil {
		return nil, nil, err
	}
	return n.look.ForFleet(found, st)
}

// Poll is how long this node's overlay wants from one question to the registry to the
// next; 0 where it says nothing, or what nobody may want.
func (n *Node) Poll() time.Duration {
	found, err := n.effect.Running()
	if err != nil || found.Overlay.Agent == nil || rules.Poll(found.Overlay.Agent.Poll) != nil {
		return 0
	}
	return time.Duration(found.Overlay.Agent.Poll) * time.Second
}

// Last is the status after the last run of the service; false where there was none
// since this root came up.
func (n *Node) Last() (*spec.Status, bool) {
	last := n.session.Last()
	return &last, last.Kind != "" && last.RootID == n.session.Scopes.Root
}

// ReportDir is where the numbers and the spool of reports are.
func (n *Node) ReportDir() string { return n.post.ReportDir() }

// Reporter opens what signs and sends reports, and makes this node's key where it has
// none. It stays usable when the node is closed.
func (n *Node) Reporter() (*report.Reporter, error) { return n.post.Reporter() }

// RecordReport notes in systemd's journal that the node tells news.
func (n *Node) RecordReport(r *spec.Report) { n.post.RecordReport(r) }
