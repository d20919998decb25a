// SPDX-License-Identifier: Apache-2.0

package say

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// explain says of a node on one screen what is wrong, worst first, what the node did about
// it and what a person can do now. events are those of its black box, oldest first.
func explain(st *spec.Status, events []spec.Event) spec.Why {
	w := spec.Why{APIVersion: spec.APIVersion, Kind: spec.KindWhy, Node: st.Node, Fleet: st.Fleet, Health: st.Health, Sync: st.Sync,
		Generation: st.Generation, Layer: st.Layer, LayerVersion: st.LayerVersion, Findings: []spec.Finding{}}
	e := explainer{st, events}
	for _, look := range []func() []spec.Finding{e.rejected, e.undone, e.broken, e.rescue, e.sync, e.items, e.rest} {
		w.Findings = append(w.Findings, look()...)
	}
	w.Well = len(w.Findings) == 0
	w.Last = e.last()
	return w
}

type explainer struct {
	st     *spec.Status
	events []spec.Event
}

// troubles are the events that tell of something that failed.
var troubles = []string{spec.EventAsked, spec.EventGaveUp, spec.EventLost, spec.EventCrashed, spec.EventDeadline, spec.EventRefused,
	spec.EventTakenBack, spec.EventOverdue, spec.EventHung, spec.EventUndone, spec.EventGateFailed, spec.EventLeft, spec.EventCorrupt}

// last is the last event that tells of something that failed, nil where none does.
func (e explainer) last() *spec.Event {
	for _, event := range slices.Backward(e.events) {
		if slices.Contains(troubles, event.Event) {
			return &event
		}
	}
	return nil
}

// fillFromEvents fills in what the black box has of a generation: what failed, and what was done.
// Of a boot that counts as an attempt, the one that left the most words.
func (e explainer) fillFromEvents(f *spec.Finding, overlay string, kinds ...string) {
	for _, event := range slices.Backward(e.events) {
		if event.Overlay != overlay || !slices.Contains(kinds, event.Event) {
			continue
		}
		if f.Did == "" {
			f.Did, f.Since, f.Transition = event.Did, event.Time, event.Transition
		}
		f.Layer = cmp.Or(f.Layer, event.Layer)
		if f.Item == "" {
			f.Item, f.Key = event.Item, event.Key
		}
		f.Errno = cmp.Or(f.Errno, event.Errno)
		if len(f.Console) == 0 {
			f.Console = event.Console
			if len(f.Console) > 0 && (event.Event == spec.EventCrashed || event.Event == spec.EventDeadline) {
				f.Reason += "; " + event.Why
			}
		}
	}
}

const again = "publish a newer generation, or try this one again: caisson-agent sync --retry"

// rejected is a generation that this node does not run any more.
func (e explainer) rejected() []spec.Finding {
	r := e.st.Rejected
	if r == nil {
		return nil
	}
	f := spec.Finding{What: fmt.Sprintf("generation %d is rejected on this node", r.Generation),
		Generation: r.Generation, Overlay: r.Overlay, Reason: r.Reason, Do: again}
	e.fillFromEvents(&f, r.Overlay, spec.EventGateFailed, spec.EventTakenBack, spec.EventOverdue, spec.EventDeadline,
		spec.EventCrashed, spec.EventLost)
	if !r.At.IsZero() {
		f.Since = r.At
	}
	if f.Did == "" || f.Did == "it counts as an attempt" {
		f.Did = fmt.Sprintf("went back to generation %d", e.st.Generation)
	}
	return []spec.Finding{f}
}

// undone is a generation that cut the node off, or that nobody confirmed.
func (e explainer) undone() []spec.Finding {
	t := e.st.Trial
	if t == nil || t.Undone == "" {
		return nil
	}
	f := spec.Finding{What: fmt.Sprintf("generation %d was undone", t.Generation), Generation: t.Generation,
		Overlay: t.Overlay, Reason: t.Undone, Since: t.Since, Do: again}
	e.fillFromEvents(&f, t.Overlay, spec.EventUndone)
	return []spec.Finding{f}
}

// broken returns the findings for a generation that runs, did not pass its gates and has nothing to
// go back to.
func (e explainer) broken() []spec.Finding {
	if e.st.Health != spec.HealthBroken {
		return nil
	}
	f := spec.Finding{What: fmt.Sprintf("generation %d did not pass its gates", e.st.Generation),
		Generation: e.st.Generation, Overlay: e.st.Overlay, Layer: e.st.Layer,
		Reason: e.st.HealthDetail, Since: e.st.HealthSince, Did: "goes on with it: there is nothing better",
		Do: "mend what the check looks at, or publish a newer generation"}
	e.fillFromEvents(&f, e.st.Overlay, spec.EventGateFailed)
	return []spec.Finding{f}
}

// rescue is an operator who is let in: what is wrong may be theirs.
func (e explainer) rescue() []spec.Finding {
	r := e.st.Rescue
	if r == nil || !r.Open && r.Trouble == "" {
		return nil
	}
	f := spec.Finding{What: "rescue access is open: " + strings.Join(r.Opens, " and "), Reason: r.Reason, Since: r.Since,
		Did: fmt.Sprintf("shuts it in %s", time.Duration(r.Left)*time.Second),
		Do:  "journalctl -u caisson-agent; nothing, unless you do not know of it: then reboot, and revoke key " + strings.Join(r.Keys, ", ")}
	if r.Trouble != "" {
		f.Reason += "; " + r.Trouble
	}
	return []spec.Finding{f}
}

// sync is a registry that has nothing for this node. That something waits, or was
// rejected, is not wrong in itself.
func (e explainer) sync() []spec.Finding {
	f := spec.Finding{Reason: e.st.SyncDetail, Since: e.st.SyncSince, Did: fmt.Sprintf("goes on with generation %d", e.st.Generation)}
	switch code, refused := refusedBy(e.st.Sync); {
	case refused:
		f.What, f.Code = "what the registry has for this node is refused", string(code)
		f.Do = (&refusal.Refusal{Code: code}).Hint()
	case e.st.Sync == spec.SyncUnreachable && e.st.Asked.IsZero() && e.st.Mode == spec.ModeAttached:
		return nil // this host has not asked yet
	case e.st.Sync == spec.SyncUnreachable:
		f.What, f.Do = "the registry does not answer", "look at the registry, its name and certificate, the network and the "+
			"clock; caisson-agent sync asks again"
	case e.st.Sync == spec.SyncExpired:
		f.What, f.Do = "the overlay's signature has expired", "caisson refresh"
	case e.st.Sync == spec.SyncUnconfirmed:
		f.What, f.Do = "nothing confirms that this is the newest generation", "caisson refresh"
	default:
		return nil
	}
	return []spec.Finding{f}
}

// items are the kinds that are not as the overlay says.
func (e explainer) items() []spec.Finding {
	var found []spec.Finding
	for _, i := range e.st.Items {
		if i.State != spec.ItemDegraded && i.State != spec.ItemQuarantined {
			continue
		}
		f := spec.Finding{What: i.Name + " is not as the overlay says", Generation: e.st.Generation, Overlay: e.st.Overlay,
			Layer: e.st.Layer, Item: i.Name, Reason: i.Error,
			Did: "tries again every minute", Do: "journalctl -u caisson-agent; mend it there or in the site"}
		why := ""
		for _, d := range e.st.Drift {
			if d.Item != i.Name || d.Action == spec.ActionDefer || d.Action == spec.ActionReport || d.Action == spec.ActionCannot {
				continue
			}
			if f.Key == "" {
				f.Key, f.Since, why = d.Key, d.Since, d.Reason
			}
			if d.Action == spec.ActionQuarantine {
				f.Key, f.Since = d.Key, d.Since
				f.What = fmt.Sprintf("%s %s was corrected %d times without success", d.Item, d.Key, d.Count)
				f.Reason, f.Did = "changed again by: "+d.Rival, "reports it, and leaves it alone"
				f.Do = fmt.Sprintf("end what changes it, then: caisson-agent clear %s:%s", d.Item, d.Key)
				break
			}
		}
		if i.Name == "exec" && f.Key != "" {
			f.Do = "caisson-agent status --logs " + f.Key
		}
		if i.Name == "secrets" && f.Key != "" {
			f.Did = "goes on without it"
			f.Do = fmt.Sprintf("caisson secrets accept SITE %s --recipient %s --replace; then publish", e.st.Node, e.st.Recipient)
			switch {
			case e.st.Recipient == "":
				f.Do = "start the machine by a loader that the boot key has signed; or caisson-agent recipient rotate, and accept what it prints"
			case strings.Contains(why, e.st.Recipient): // it is accepted already
				f.Do = fmt.Sprintf("take the row of %s for %s out of secrets.lock; then publish", f.Key, e.st.Node)
			}
		}
		found = append(found, f)
	}
	return found
}

// rest returns the findings for all else that the status counts against the node.
func (e explainer) rest() []spec.Finding {
	var found []spec.Finding
	for _, d := range e.st.Drift {
		ofItem := slices.ContainsFunc(e.st.Items, func(i spec.ItemStatus) bool { return i.Name == d.Item })
		if d.Action != spec.ActionRefuse || ofItem || d.Item == "overlay" && (e.st.Rejected != nil || e.st.Trial != nil) {
			continue
		}
		f := spec.Finding{What: d.Item + " " + d.Key, Item: d.Item, Key: d.Key, Reason: d.Reason, Since: d.Since,
			Did: "goes on", Do: remedies[d.Item]}
		f.Do = cmp.Or(f.Do, "caisson-agent status")
		if d.Item == "image" {
			f.Did = ""
			e.fillFromEvents(&f, e.st.Overlay, spec.EventCorrupt)
		}
		if d.Item == "overlay" {
			f = spec.Finding{What: d.Key + " is not in effect", Reason: d.Reason, Do: again}
			var overlay string
			if l := e.last(); l != nil && "generation "+fmt.Sprint(l.Generation) == d.Key {
				overlay = l.Overlay
			}
			e.fillFromEvents(&f, overlay, spec.EventTakenBack, spec.EventUndone)
			if f.Did == "" {
				f.Did = fmt.Sprintf("goes on with generation %d", e.st.Generation)
			}
		}
		found = append(found, f)
	}
	return found
}

var remedies = map[string]string{
	"state":     "docs/state-disk.md has the remedy of each",
	"image":     "reboot: the boot reads all of it, and fetches it again where it differs; if that happens again, replace the disk",
	"operation": "caisson-agent operation list",
	"apparmor":  "start a kernel that has what the profiles ask for",
	"journal":   "look at the file that it names, then remove it",
}

func refusedBy(s spec.Sync) (refusal.Code, bool) {
	for _, c := range refusal.Codes() {
		if s == spec.SyncRefused(string(c)) {
			return c, true
		}
	}
	return "", false
}
