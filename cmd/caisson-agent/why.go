// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

// What fits on a screen of 24 lines.
const (
	mostFindings = 2
	mostConsole  = 6
)

// why prints what is wrong with the node, what it did about it and what to do now.
func why(ctx context.Context, a *app, args []string) error {
	if err := newFlags(a, "why").parse(a, args); err != nil {
		return err
	}
	return printRead(ctx, a, "why", func(n *node.Node) (spec.Why, error) { return n.Why(ctx) }, a.printWhy)
}

func (a *app) printWhy(w spec.Why) {
	row := func(name, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); strings.TrimSpace(text) != "" {
			cli.Printf(a.out, "%-10s %s\n", name, text)
		}
	}
	row("node", "%s of fleet %s: health %s, sync %s", w.Node, w.Fleet, w.Health, w.Sync)
	row("runs", "%s", whatRuns(w.Generation, w.Layer, w.LayerVersion))
	if w.Well {
		row("wrong", "nothing")
		if e := w.Last; e != nil {
			row("last", "%s: %s", moment(e.Time), sayEvent(*e))
		}
		a.printBox(w)
		return
	}
	for n, f := range w.Findings {
		if n == mostFindings {
			row("more", "%d: caisson-agent status", len(w.Findings)-n)
			break
		}
		since := ""
		if !f.Since.IsZero() {
			since = " (since " + moment(f.Since) + ")"
		}
		row("wrong", "%s%s", f.What, since)
		row("  because", "%s", f.Reason)
		row("  what", "%s", strings.Join(strings.Fields(strings.Join([]string{f.Item, f.Key, f.Errno, f.Code}, " ")), " "))
		if f.Layer != w.Layer {
			row("  layer", "%s", f.Layer)
		}
		row("  did", "%s", f.Did)
		row("  decided", "%s", f.Transition)
		row("  do", "%s", f.Do)
		for _, line := range f.Console[max(0, len(f.Console)-mostConsole):] {
			row("  console", "%s", line)
		}
	}
	a.printBox(w)
}

func (a *app) printBox(w spec.Why) {
	kept := "outlives this boot"
	if w.Memory {
		kept = "is in memory: it ends with this boot"
	}
	cli.Printf(a.out, "%-10s %d events, it %s: caisson-agent why -o json\n", "black box", len(w.Events), kept)
	if w.Trouble != "" {
		cli.Printf(a.out, "%-10s %s\n", "", w.Trouble)
	}
}

func whatRuns(generation uint64, layer, version string) string {
	if generation == 0 {
		return ""
	}
	text := fmt.Sprintf("generation %d", generation)
	if layer != "" {
		text += ", layer " + strings.TrimSpace(version+" "+layer)
	}
	return text
}

// sayEvent is an event in one line.
func sayEvent(e spec.Event) string {
	text := e.Event
	if e.Generation > 0 {
		text += fmt.Sprintf(", generation %d", e.Generation)
	}
	if e.Why != "" {
		text += ": " + e.Why
	}
	return text
}
