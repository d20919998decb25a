// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/internal/cli"
)

// logs prints the last run of a script and its output.
func (a *app) logs(f *flags, n *node.Node, script string) error {
	last, err := n.LastRun(script)
	if err != nil {
		return err
	}
	return a.show(last, func() {
		ended := ""
		if !last.End.IsZero() {
			ended = ", ended " + moment(last.End)
		}
		cli.Printf(a.out, "%s: %s (started %s%s)\n", last.Name, last.Result, moment(last.Start), ended)
		for line := range strings.Lines(last.Output) {
			cli.Printf(a.out, "  %s\n", strings.TrimRight(line, "\r\n"))
		}
	})
}
