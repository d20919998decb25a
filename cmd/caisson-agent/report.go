// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/tell/report"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

// reported is the output of report -o json.
type reported struct {
	To      string       `json:"to,omitempty"`  // absent where the overlay names nobody
	Key     string       `json:"key,omitempty"` // id; absent before the first report
	Waiting int          `json:"waiting"`       // reports that are not yet delivered
	Report  *spec.Report `json:"report"`        // without number and time, which are given when it is signed
}

// printReport prints what the service tells of its last run.
func printReport(ctx context.Context, a *app, args []string) error {
	if err := newFlags(a, "report").parse(a, args); err != nil {
		return err
	}
	return printRead(ctx, a, "report", func(n *node.Node) (out reported, err error) {
		st, ok := n.Last()
		if !ok {
			if st, err = n.Status(ctx); err != nil {
				return out, err
			}
		}
		one, to, err := n.Report(st)
		if err != nil {
			return out, err
		}
		out.Report = one
		if to == nil {
			out.Report = spec.NewReport(st)
		} else {
			out.To = to.String()
		}
		out.Key, out.Waiting, err = report.Peek(n.ReportDir())
		return out, err
	}, a.printReported)
}

func (a *app) printReported(o reported) {
	row := a.row
	r := o.Report
	row("node", "%s of fleet %s", r.Node, r.Fleet)
	if o.To == "" {
		row("to", "nowhere: the site has no machine.agent.report")
	} else {
		row("to", "%s", o.To)
	}
	if o.Key != "" {
		row("key", "%s", o.Key)
	}
	row("waiting", "%d", o.Waiting)
	row("generation", "%d, epoch %d", r.Generation, r.Epoch)
	row("health", "%s", sayAxis(r.Axes.Health))
	row("tracking", "%s", sayAxis(r.Axes.Tracking))
	row("sync", "%s", sayAxis(r.Axes.Sync))
	row("activity", "%s", sayAxis(r.Axes.Activity))
	row("drift", "%d", len(r.Drift))
	if w := r.NextWindow; w != nil {
		row("window", "%s, %s to %s", w.Name, moment(w.From), moment(w.To))
	}
}
