// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
)

func status(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "status")
	var script string
	f.StringVar(&script, "logs", "", "print the last run of the script of this `name`, and what it printed")
	watch := f.Bool("watch", false, "print it again every two seconds, until a signal")
	steps := f.Bool("trace", false, "print how long each step of the boot and of the agent's runs took")
	if err := f.parse(a, args); err != nil {
		return err
	}
	switch {
	case *watch && *steps:
		return cli.Usage("give one of them", "--watch and --trace exclude each other")
	case script != "" && (*watch || *steps):
		return cli.Usage("give one of them", "--logs excludes --watch and --trace")
	case script != "":
		return a.printLogs(ctx, script)
	case *steps:
		return a.printTrace(ctx)
	case *watch:
		return a.watch(ctx, watchEvery, func() error { return a.printNow(ctx) })
	}
	return a.printNow(ctx)
}

// opening opens a node to write to it, or only to read.
type opening func(context.Context, session.Options, *spec.Bootstrap) (*node.Node, error)

// with opens the node for what a verb does.
func (a *app) with(ctx context.Context, verb string, open opening, do func(*node.Node) error) error {
	n, err := open(ctx, a.options(verb), nil)
	if err != nil {
		return err
	}
	defer n.Close() // what was noted is on disk already
	return do(n)
}

// printRead prints what ask finds out about the node, and writes nothing to it.
func printRead[T any](ctx context.Context, a *app, verb string, ask func(*node.Node) (T, error), text func(T)) error {
	return a.with(ctx, verb, node.Read, func(n *node.Node) error {
		found, err := ask(n)
		if err != nil {
			return err
		}
		return a.show(found, func() { text(found) })
	})
}

// printNow looks at the node and prints what it is.
func (a *app) printNow(ctx context.Context) error {
	return a.with(ctx, "status", node.Read, func(n *node.Node) error {
		st, err := n.Status(ctx)
		if err == nil {
			err = a.showStatus(st)
		}
		if err == nil && slices.ContainsFunc(st.Drift, matters) {
			return cli.ErrDrift
		}
		return err
	})
}

func (a *app) showStatus(st *spec.Status) error {
	shown := *st
	shown.Drift = spelled(st.Drift)
	return a.show(shown, func() { a.printStatus(st) })
}

// row prints a line that begins with its name.
func (a *app) row(name, format string, args ...any) {
	cli.Printf(a.out, "%-11s ", name)
	cli.Printf(a.out, format+"\n", args...)
}

func (a *app) printStatus(st *spec.Status) {
	row := a.row
	row("node", "%s of fleet %s (%s)", st.Node, st.Fleet, st.Mode)
	a.printAxes(st.Axes())
	if !st.Asked.IsZero() {
		row("asked", "%s", moment(st.Asked))
	}
	generation := fmt.Sprintf("%d, epoch %d", st.Generation, st.Epoch)
	if st.Source != "" { // a boot of caisson's chose it
		generation += fmt.Sprintf(" (%s)", st.Source)
	}
	row("generation", "%s", generation)
	row("overlay", "%s, expires %s", st.Overlay, moment(st.Expires))
	if len(st.LeftOut) > 0 {
		row("", "%s", spec.LeftOut(st.LeftOut))
	}
	if st.Layer != "" {
		row("layer", "%s", strings.TrimSpace(st.LayerVersion+" "+st.Layer))
	}
	if st.Image != "" && st.Image != st.LayerVersion {
		row("image", "%s", st.Image)
	}
	switch st.ImageCheck {
	case spec.ImagesWhenRead:
		row("images", "each block is checked when it is read")
	case spec.ImagesAtBoot:
		row("images", "checked when the boot began, not when they are read: %s", st.ImageCheckDetail)
	}
	row("agent", "%s", st.Agent)
	printParts(row, st)
	if len(st.Operations) > 0 {
		fmt.Fprintln(a.out, "operations")
		a.printOperations(st.Operations)
	}
	if len(st.Drift) > 0 {
		fmt.Fprintln(a.out, "drift")
		a.printDrift(st.Drift)
	}
	for _, name := range st.Foreign {
		row("foreign", "%s", name)
	}
}

// printParts prints what the parts of a node say of themselves, a row each.
func printParts(row func(name, format string, args ...any), st *spec.Status) {
	if st.Recipient != "" {
		row("recipient", "%s%s", st.Recipient, map[bool]string{true: ", sealed to the TPM"}[st.Sealed])
	}
	if k := st.Keys; k != nil {
		text := fmt.Sprintf("version %d", k.Version)
		if k.BootFiles != k.Version {
			text += fmt.Sprintf("; its boot files were written with version %d", k.BootFiles)
		}
		row("keys", "%s", text)
	}
	for _, c := range st.Checks {
		text := "holds"
		if !c.Holds {
			text = strings.TrimSuffix("does not hold: "+c.Detail, ": ")
		}
		row("  "+c.Name, "%s, %d of %d failures", text, c.Failures, c.Retries+1)
	}
	if r := st.Rejected; r != nil {
		row("rejected", "%s", sayAxis(spec.Axis{State: fmt.Sprintf("generation %d", r.Generation), Detail: r.Reason, Since: r.At}))
	}
	if st.Staged != "" && st.Staged == st.Overlay {
		row("staged", "the layer of this overlay waits for a reboot")
	} else if st.Staged != "" {
		row("staged", "%s, waits for a reboot", st.Staged)
		if st.StagedBytes != nil {
			row("", "%s", st.StagedBytes)
		}
	}
	for _, i := range st.Items {
		if i.State == spec.ItemOK && i.Applied == 0 {
			continue // nothing is asked of this kind
		}
		row("  "+i.Name, "%s", plain.With(fmt.Sprintf("%s, %d as wanted", i.State, i.Applied), ": ", i.Error))
	}
	if r := st.Rescue; r != nil {
		row("rescue", "%s", sayRescue(r))
	}
	if n := len(st.Protected); n > 0 {
		row("protected", "%d of the kernel parameters", n)
	}
	for _, r := range st.Refused {
		row("refused", "%s = %s, by %s; %d times, last %s", r.Key, r.Value, r.Rival, r.Count, moment(r.At))
	}
}

// sayRescue says which ways in a rescue statement has opened, and the code for the next one.
func sayRescue(r *spec.RescueStatus) string {
	var words []string
	if r.Open {
		words = append(words, fmt.Sprintf("%s open for %s: %s, signed by %s", strings.Join(r.Opens, " and "),
			time.Duration(r.Left)*time.Second, r.Reason, strings.Join(r.Keys, ", ")))
	}
	if r.Trouble != "" {
		words = append(words, r.Trouble)
	}
	if r.Wrong > 0 {
		words = append(words, fmt.Sprintf("%d statements for another code", r.Wrong))
	}
	if r.Code != "" {
		words = append(words, "code "+r.Code)
	}
	return cmp.Or(strings.Join(words, "; "), "closed")
}

// sayAxis is one axis as a line: its state, why, since and until when.
func sayAxis(x spec.Axis) string {
	text := plain.With(x.State, ": ", x.Detail)
	var span []string
	if !x.Since.IsZero() {
		span = append(span, "since "+moment(x.Since))
	}
	if !x.Until.IsZero() {
		span = append(span, "until "+moment(x.Until))
	}
	if len(span) > 0 {
		text += " (" + strings.Join(span, ", ") + ")"
	}
	return text
}

// printAxes prints all of them, a row each.
func (a *app) printAxes(x spec.Axes) {
	a.row("health", "%s", sayAxis(x.Health))
	a.row("tracking", "%s", sayAxis(x.Tracking))
	a.row("sync", "%s", sayAxis(x.Sync))
	a.row("activity", "%s", sayAxis(x.Activity))
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// printLogs prints the last run of a script and its output.
func (a *app) printLogs(ctx context.Context, script string) error {
	return a.with(ctx, "status", node.Read, func(n *node.Node) error {
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
	})
}

// reported is the output of report -o json.
type reported struct {
	To      string       `json:"to,omitempty"`  // absent where the overlay names nobody
	Key     string       `json:"key,omitempty"` // id; absent before the first report
	Waiting int          `json:"waiting"`       // reports that are not yet delivered
	Report  *spec.Report `json:"report"`        // without number and time, which are given when it is signed
}

// printReport prints what the service tells of its last run.
func printReport(ctx context.Context, a *app) error {
	return printRead(ctx, a, "report", func(n *node.Node) (out reported, err error) {
		st, err := lastStatus(ctx, n)
		if err != nil {
			return out, err
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
		out.Key, out.Waiting, err = post.Peek(n.ReportDir())
		return out, err
	}, a.printReported)
}

// lastStatus returns what the service found when it looked last, or what is found now.
func lastStatus(ctx context.Context, n *node.Node) (*spec.Status, error) {
	if st, ok := n.Last(); ok {
		return st, nil
	}
	return n.Status(ctx)
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
	a.printAxes(r.Axes)
	row("drift", "%d", len(r.Drift))
	if w := r.NextWindow; w != nil {
		row("window", "%s, %s to %s", w.Name, moment(w.From), moment(w.To))
	}
}

const (
	watchEvery = 2 * time.Second
	clear      = "\x1b[H\x1b[2J" // of a terminal, see console_codes(4)
)

// watch prints again and again until a signal, on a terminal from its top. Drift is no
// error then, and no other error is the end: what is watched may be about to mend.
func (a *app) watch(ctx context.Context, every time.Duration, look func() error) error {
	onTerminal := a.format != "json" && cli.IsTerminal(os.Stdout)
	for {
		if onTerminal {
			if _, err := io.WriteString(a.out, clear); err != nil {
				return err
			}
		}
		if err := look(); err != nil && !errors.Is(err, cli.ErrDrift) {
			if ctx.Err() != nil {
				return nil
			}
			a.report(err)
		}
		if stall.Rest(ctx, every) != nil {
			return nil
		}
		if !onTerminal && a.format != "json" {
			cli.Printf(a.out, "\n")
		}
	}
}

// printTrace prints the steps of the boot, of the first run and of the last one.
func (a *app) printTrace(ctx context.Context) error {
	return printRead(ctx, a, "status", (*node.Node).Trace, func(t *spec.Trace) {
		cli.Printf(a.out, "%-5s %10s %9s  %s\n", "", "start", "took", "step")
		for _, part := range []struct {
			name  string
			steps []spec.Step
		}{{"boot", t.Boot}, {"first", t.First}, {"last", t.Last}} {
			for _, s := range part.steps {
				result := ""
				if s.Bytes != nil {
					result = ": " + s.Bytes.String()
				}
				if s.Result != spec.StepOK {
					result = ": " + s.Result
				}
				cli.Printf(a.out, "%-5s %8.3f s %7.3f s  %s%s\n", part.name, s.Start/1000, s.Took/1000, s.Name, result)
			}
		}
	})
}

// What fits on a screen of 24 lines.
const (
	mostFindings = 2
	mostConsole  = 6
)

// why prints what is wrong with the node, what it did about it and what to do now.
func why(ctx context.Context, a *app) error {
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
	return plain.With(text, ": ", e.Why)
}
