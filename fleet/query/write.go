// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Write prints the nodes of a list for people, so many at most where there is a limit.
func (l List) Write(w io.Writer, limit int) {
	var t plain.Columns
	list, more := l.Nodes, 0
	if limit > 0 && len(list) > limit {
		list, more = list[:limit], len(list)-limit
	}
	for _, l := range list {
		why := l.Why
		if len(l.Labels) > 0 {
			why = strings.TrimSpace(why + " [" + strings.Join(l.Labels, " ") + "]")
		}
		t.Add(l.Name, string(l.Condition), fmt.Sprintf("generation %d of %d", l.Generation, l.Published), plain.Time(l.Received), why)
		if l.Hint != nil {
			t.Add("", "unproven", "", plain.Time(l.Hint.At), "its loader boots nothing: "+l.Hint.Why)
		}
	}
	t.Print(w, "")
	if more > 0 {
		cli.Printf(w, "and %s more: --limit 0 lists all\n", plain.Count(more, "node"))
	}
}

// Write prints for people all that is known of a node.
func (n Node) Write(w io.Writer) {
	cli.Printf(w, "%s: %s, %s\n", n.Name, n.Condition, cmp.Or(n.Why, view.KindOf(n.Condition).Says))
	t := &plain.Columns{}
	line := func(what, format string, args ...any) { t.Add(what, fmt.Sprintf(format, args...)) }
	if len(n.Labels) > 0 {
		line("labels", "%s", strings.Join(n.Labels, " "))
	}
	if len(n.Sets) > 0 {
		line("sets", "%s", strings.Join(n.Sets, " "))
	}
	if p := n.Published; p != nil {
		line("published", "generation %d, overlay %s%s", p.Generation, p.Overlay, ofLayer("", p.Layer))
		if len(p.Holds) > 0 {
			line("held", "%s", published.HoldText(p.Holds))
		}
	} else {
		line("published", "nothing")
	}
	if r := n.Report; r != nil {
		line("reported", "generation %d, overlay %s%s, at %s", r.Generation, cmp.Or(r.Overlay, "unknown"),
			ofLayer(r.LayerVersion, r.Layer), plain.Time(n.Received))
		if r.Staged != "" {
			line("staged", "overlay %s, for the next boot", r.Staged)
		}
		line("agent", "%s, %s", cmp.Or(r.Agent, "unknown"), r.Mode)
		if k := r.Keys; k != nil {
			line("keys", "version %d, boot files of version %d", k.Version, k.BootFiles)
		}
		for _, x := range []struct {
			name string
			axis spec.Axis
		}{{"health", r.Axes.Health}, {"sync", r.Axes.Sync}, {"tracking", r.Axes.Tracking}, {"activity", r.Axes.Activity}} {
			line(x.name, "%s", axisLine(x.axis))
		}
		if n.TPM != "" {
			line("TPM", "%s", plain.With(string(n.TPM), ": ", n.TPMWhy))
		}
		if next := r.NextWindow; next != nil {
			line("window", "%s, from %s to %s", next.Name, plain.Time(next.From), plain.Time(next.To))
		}
	} else {
		line("reported", "nothing")
	}
	for _, l := range n.Slots {
		line("slot", "%s since %s", l.Group, plain.Time(l.Since))
	}
	if n.Key != "" {
		line("key", "%s, %s, counts since %s", n.Key, n.Grade, plain.Time(n.KeySince))
	}
	if o := n.Offered; o != nil {
		line("other key", "%s since %s, which is not counted: %s", o.Report.Key, plain.Time(o.At), o.Why)
	}
	if m := n.Machine; m != nil {
		if m.EK != "" {
			line("", "endorsement key %s", m.EK)
		}
		line("", "key %s; where that is the node's, 'caisson fleet accept %s %s'", m.Key, n.Name, m.ID)
	}
	if h := n.Hint; h != nil {
		line("unproven", "%s says at %s that its loader boots nothing: %s", h.From, plain.Time(h.At), h.Why)
		if h.Code != "" {
			line("", "and shows code %s, for 'caisson rescue': compare it with the console", h.Code)
		}
	}
	t.Print(w, "  ")
	n.writeReport(w, t)
}

// maxPast is how much of a node's history is printed.
const maxPast = 10

// writeReport prints the lists of a node: drift, kinds, operations, services, history.
func (n Node) writeReport(w io.Writer, t *plain.Columns) {
	part := func(title string) {
		if !t.Empty() {
			cli.Printf(w, "%s\n", title)
			t.Print(w, "  ")
		}
	}
	if r := n.Report; r != nil {
		for _, d := range r.Drift {
			t.Add(d.Item+" "+d.Key, driftLine(d))
		}
		part("drift")
		for _, i := range r.Items {
			t.Add(i.Name, string(i.State), fmt.Sprintf("%d as wanted", i.Applied), i.Error)
		}
		part("settings")
		for _, o := range r.Operations {
			next := ""
			if !o.Next.IsZero() {
				next = "next " + plain.Time(o.Next)
			}
			t.Add(o.Name, string(o.State), next, o.Detail)
		}
		part("operations")
		if r.More > 0 {
			cli.Printf(w, "and %d more than a report holds: caisson-agent status on the node has them\n", r.More)
		}
	}
	for _, s := range n.Services {
		was := cmp.Or(s.Published, "nothing")
		if !s.Read {
			was = "what was not read"
		}
		t.Add(s.Name, "sent "+was, "reports "+cmp.Or(s.Reported, "nothing"))
	}
	part("services")
	for _, e := range n.History[:min(len(n.History), maxPast)] {
		t.Add(plain.Time(e.At), e.What)
	}
	part("history")
}

// driftLine says what is wanted and what is, who did it and since when, as far as the node
// knows.
func driftLine(d spec.Drift) string {
	text := fmt.Sprintf("wanted %q, found %q: %s", d.To, d.From, d.Action)
	if d.Count > 0 {
		text += " after " + plain.Count(d.Count, "correction")
	}
	text = plain.With(text, ", by ", d.Rival)
	if !d.Since.IsZero() {
		text += ", since " + plain.Time(d.Since)
	}
	return plain.With(text, ": ", d.Reason)
}

func ofLayer(version, digest string) string {
	if digest == "" {
		return ""
	}
	return ", layer " + strings.TrimSpace(version+" "+digest)
}

func axisLine(x spec.Axis) string {
	text := x.State
	if !x.Since.IsZero() {
		text += ", since " + plain.Time(x.Since)
	}
	if !x.Until.IsZero() {
		text += ", until " + plain.Time(x.Until)
	}
	return plain.With(text, ": ", x.Detail)
}

// Write prints for people how the fleet is.
func (s Summary) Write(w io.Writer) {
	cli.Printf(w, "fleet %s, generation %d, epoch %d: %s, %d to look at\n", s.Name, s.Generation, s.Epoch,
		plain.Count(s.Nodes, "node"), s.Trouble)
	where := func(is bool, format string, args ...any) {
		if is {
			cli.Printf(w, format+"\n", args...)
		}
	}
	where(len(s.SignedBy) > 0, "published by key %s", strings.Join(s.SignedBy, ", "))
	where(s.IndexTrouble != "", "what is published could not be read since %s: %s", s.Indexed.Format(time.RFC3339), s.IndexTrouble)
	where(s.Unfinished != "", "publish unfinished; showing the state before it: %s", s.Unfinished)
	for _, r := range s.Rollouts {
		cli.Printf(w, "rollout %s: %s\n", r.Name, r)
	}
	where(s.DatabaseTrouble != "", "the database of the service cannot be used, and reports are not taken: %s", s.DatabaseTrouble)
	where(s.DatabaseTrouble == "" && !s.Writes, "another instance takes the reports; this one shows what that wrote")
	where(s.Unheard > 0, "the service was away; shown as last known, until they report: %s", plain.Count(s.Unheard, "node"))
	where(s.SiteTrouble != "", "the site of the service has changed and cannot be read: %s", s.SiteTrouble)
	where(s.InboxTrouble != "", "reports in the registry of reports could not be read: %s", s.InboxTrouble)
	var t plain.Columns
	for _, k := range view.Kinds {
		if n := s.Conditions[k.Condition]; n > 0 {
			t.Add(fmt.Sprint(n), string(k.Condition), k.Says)
		}
	}
	t.Print(w, "  ")
	if len(s.TPM) > 0 {
		words := plain.Pick(view.Attestations, func(word view.Attestation) (string, bool) {
			return fmt.Sprintf("%d %s", s.TPM[word], word), s.TPM[word] > 0
		})
		cli.Printf(w, "by their TPM: %s\n", strings.Join(words, ", "))
	}
	for _, h := range s.Hints {
		cli.Printf(w, "unproven: the loader of %s boots nothing, says %s at %s: %s\n", h.Node, h.From, h.At.Format(time.RFC3339), h.Why)
	}
	more := s.Hinted - len(s.Hints)
	where(more > 0, "unproven: and those of %s more", plain.Count(more, "node"))
	for _, r := range append(slices.Clone(s.Reasons), s.Others...) {
		cli.Printf(w, "%s %s, as %s: %s\n", plain.Count(r.Nodes, "node"), r.Condition, r.Example, cmp.Or(r.Why, view.KindOf(r.Condition).Says))
	}
	where(s.More > 0, "and %s more", plain.Count(s.More, "reason"))
}
