// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// rows returns what prints a line that begins with its name.
func rows(w io.Writer) func(name, format string, args ...any) {
	return func(name, format string, args ...any) {
		cli.Printf(w, "%-11s ", name)
		cli.Printf(w, format+"\n", args...)
	}
}

// Status prints what a node is.
func Status(w io.Writer, st *spec.Status) {
	row := rows(w)
	row("node", "%s of fleet %s (%s)", st.Node, st.Fleet, st.Mode)
	axes(row, st.Axes())
	if !st.Asked.IsZero() {
		row("asked", "%s", Moment(st.Asked))
	}
	generation := fmt.Sprintf("%d, epoch %d", st.Generation, st.Epoch)
	if st.Source != "" { // a boot of caisson's chose it
		generation += fmt.Sprintf(" (%s)", st.Source)
	}
	row("generation", "%s", generation)
	row("overlay", "%s, expires %s", st.Overlay, Moment(st.Expires))
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
	parts(row, st)
	if len(st.Operations) > 0 {
		fmt.Fprintln(w, "operations")
		Operations(w, st.Operations)
	}
	if len(st.Drift) > 0 {
		fmt.Fprintln(w, "drift")
		Drift(w, st.Drift)
	}
	for _, name := range st.Foreign {
		row("foreign", "%s", name)
	}
}

// parts prints what the parts of a node say of themselves, a row each.
func parts(row func(name, format string, args ...any), st *spec.Status) {
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
		row("refused", "%s = %s, by %s; %d times, last %s", r.Key, r.Value, r.Rival, r.Count, Moment(r.At))
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
		span = append(span, "since "+Moment(x.Since))
	}
	if !x.Until.IsZero() {
		span = append(span, "until "+Moment(x.Until))
	}
	if len(span) > 0 {
		text += " (" + strings.Join(span, ", ") + ")"
	}
	return text
}

// axes prints all of them, a row each.
func axes(row func(name, format string, args ...any), x spec.Axes) {
	row("health", "%s", sayAxis(x.Health))
	row("tracking", "%s", sayAxis(x.Tracking))
	row("sync", "%s", sayAxis(x.Sync))
	row("activity", "%s", sayAxis(x.Activity))
}

// Moment writes a time.
func Moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Report prints what a node tells of its last run: to whom, "" for nobody, with which key, "" for none
// yet, and how many reports are not delivered.
func Report(w io.Writer, r *spec.Report, to, key string, waiting int) {
	row := rows(w)
	row("node", "%s of fleet %s", r.Node, r.Fleet)
	if to == "" {
		row("to", "nowhere: the site has no machine.agent.report")
	} else {
		row("to", "%s", to)
	}
	if key != "" {
		row("key", "%s", key)
	}
	row("waiting", "%d", waiting)
	row("generation", "%d, epoch %d", r.Generation, r.Epoch)
	axes(row, r.Axes)
	row("drift", "%d", len(r.Drift))
	if next := r.NextWindow; next != nil {
		row("window", "%s, %s to %s", next.Name, Moment(next.From), Moment(next.To))
	}
}

// Trace prints the steps of the boot, of the first run and of the last one.
func Trace(w io.Writer, t *spec.Trace) {
	cli.Printf(w, "%-5s %10s %9s  %s\n", "", "start", "took", "step")
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
			cli.Printf(w, "%-5s %8.3f s %7.3f s  %s%s\n", part.name, s.Start/1000, s.Took/1000, s.Name, result)
		}
	}
}

// What fits on a screen of 24 lines.
const (
	mostFindings = 2
	mostConsole  = 6
)

// Why prints what is wrong with a node, what it did about it and what to do now.
func Why(to io.Writer, w spec.Why) {
	row := func(name, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); strings.TrimSpace(text) != "" {
			cli.Printf(to, "%-10s %s\n", name, text)
		}
	}
	row("node", "%s of fleet %s: health %s, sync %s", w.Node, w.Fleet, w.Health, w.Sync)
	row("runs", "%s", whatRuns(w.Generation, w.Layer, w.LayerVersion))
	if w.Well {
		row("wrong", "nothing")
		if e := w.Last; e != nil {
			row("last", "%s: %s", Moment(e.Time), sayEvent(*e))
		}
		box(to, w)
		return
	}
	for n, f := range w.Findings {
		if n == mostFindings {
			row("more", "%d: caisson-agent status", len(w.Findings)-n)
			break
		}
		since := ""
		if !f.Since.IsZero() {
			since = " (since " + Moment(f.Since) + ")"
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
	box(to, w)
}

func box(to io.Writer, w spec.Why) {
	kept := "outlives this boot"
	if w.Memory {
		kept = "is in memory: it ends with this boot"
	}
	cli.Printf(to, "%-10s %d events, it %s: caisson-agent why -o json\n", "black box", len(w.Events), kept)
	if w.Trouble != "" {
		cli.Printf(to, "%-10s %s\n", "", w.Trouble)
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

// Matters reports whether a drift of a status is one that somebody should look at
// now: not what is waited for, and not what this host cannot have.
func Matters(d spec.Drift) bool {
	return d.Action != spec.ActionDefer && d.Action != spec.ActionCannot
}

// Spelled returns drift with its keys as their authors spell them; an empty list
// is never nil.
func Spelled(drift []spec.Drift) []spec.Drift {
	out := make([]spec.Drift, len(drift))
	for i, d := range drift {
		out[i] = rules.Spelled(d)
	}
	return out
}

// story says how it came to a drift: since when, how often, and by whom.
func story(d spec.Drift) string {
	var words []string
	if d.Action != spec.ActionDefer && !d.Since.IsZero() {
		words = append(words, "since "+d.Since.Format(time.RFC3339))
	}
	if d.Count > 0 {
		words = append(words, fmt.Sprintf("after %d corrections", d.Count))
	}
	if d.Rival != "" {
		words = append(words, "by "+d.Rival)
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

// Drift prints what differs, a line each.
func Drift(w io.Writer, drift []spec.Drift) {
	for _, d := range Spelled(drift) {
		line := fmt.Sprintf("%-7s %s %s", d.Action, d.Item, d.Key)
		switch {
		case d.Reason != "":
			line += ": " + d.Reason
		case d.From != "" || d.To != "":
			line += fmt.Sprintf(": %q → %q", d.From, d.To)
		}
		line += story(d)
		cli.Printf(w, "%s\n", line)
	}
}

// Trouble says the first thing that is wrong with a node.
func Trouble(st *spec.Status) string {
	for _, i := range st.Items {
		if i.Error != "" {
			return i.Name + ": " + i.Error
		}
	}
	for _, d := range Spelled(st.Drift) {
		if Matters(d) && d.Reason != "" {
			return fmt.Sprintf("%s %q: %s", d.Item, d.Key, d.Reason)
		}
		if Matters(d) && d.From == d.To {
			return fmt.Sprintf("%s %q: %s", d.Item, d.Key, d.Action)
		}
		if Matters(d) {
			return fmt.Sprintf("%s %q is %q, not %q", d.Item, d.Key, d.From, d.To)
		}
	}
	return "see 'caisson-agent status'"
}

// Operations prints where operations stand.
func Operations(w io.Writer, list []spec.OperationStatus) {
	for _, o := range list {
		line := fmt.Sprintf("%-8s %-30s %s", o.Type, o.Name, o.State)
		if !o.Since.IsZero() {
			line += " since " + o.Since.Format(time.RFC3339)
		}
		if !o.Next.IsZero() {
			line += ", next " + o.Next.Format(time.RFC3339)
		}
		if o.Missed > 0 {
			line += fmt.Sprintf(", missed %d times", o.Missed)
		}
		cli.Printf(w, "%s\n", plain.With(line, ": ", o.Detail))
	}
}

// Services prints services from git.
func Services(w io.Writer, list []spec.ServiceStatus) {
	for _, s := range list {
		cli.Printf(w, "%s  %s  %s  %s", s.Name, s.Unit, s.Commit, s.Tracking)
		if s.Tracking == spec.Frozen {
			cli.Printf(w, " since %s", s.Since.Format(time.RFC3339))
			if s.Reason != "" {
				cli.Printf(w, ": %s", s.Reason)
			}
			cli.Printf(w, ", the fleet has %s", s.Published)
		}
		cli.Printf(w, "\n")
		if before := slices.DeleteFunc(slices.Clone(s.Kept), func(c string) bool { return c == s.Commit }); len(before) > 0 {
			cli.Printf(w, "  also here: %s\n", strings.Join(before, " "))
		}
	}
}

// Quote prints the registers of a TPM, and the log that explains them.
func Quote(w io.Writer, q *spec.Quote) {
	cli.Printf(w, "key  %s\n", digest.Of(q.Key))
	if len(q.EK) > 0 {
		cli.Printf(w, " ek  %s\n", digest.Of(q.EK))
	}
	for i, r := range spec.Quoted {
		cli.Printf(w, "%3d  %x\n", r, q.Registers[i])
	}
	for line := range strings.Lines(q.Log) {
		cli.Printf(w, "     %s", line)
	}
}
