// SPDX-License-Identifier: Apache-2.0

// Package rehearsal takes a node from what is published for it to what its site says, and back,
// in a sandbox, and says what that did.
//
//	from, to, err := rehearsal.Ends(ctx, preview, "node1") // what it runs, what would be published
//	box, err := sandbox.Open(ctx, site, "node1", sandbox.Options{Kept: from, …})
//	answer, err := rehearsal.Walk(ctx, box, rehearsal.Options{From: from, To: to, …})
//
// The node goes its own way: it is told to ask its registry, as it does by itself every few
// minutes, and to reboot where it waits for a reboot; where an operator has to confirm a change,
// it is confirmed. What did not come back is told by two pictures, which know nothing of the
// agent. Only cmd/caisson imports it.
package rehearsal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/sandbox/picture"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// Options say what is rehearsed.
type Options struct {
	Node     string
	From, To *sandbox.Kept // To is nil where the site's layer is built
	Checks   []string      // command lines, for root, once the node has arrived
	Within   time.Duration // for each part of the way
	Say      func(step string)
}

// walk is one rehearsal.
type walk struct {
	Options
	box    *sandbox.Box
	answer *Answer
	begun  time.Time
	at     int
}

// next says which part of the way begins, and what those before it took.
func (w *walk) next(what string) {
	w.at++
	w.Say(fmt.Sprintf("%d of 6, after %s: %s", w.at, time.Since(w.begun).Round(time.Second), what))
}

// failure is what is wrong with the node, in place of an error of the rehearsal.
type failure struct{ reason string }

func (f *failure) Error() string { return f.reason }

// Walk starts the machine of a box that was opened with what the node runs, and takes it there
// and back.
func Walk(ctx context.Context, box *sandbox.Box, o Options) (*Answer, error) {
	w := &walk{Options: o, box: box, begun: time.Now(), answer: &Answer{Node: o.Node, Left: []picture.Difference{},
		Checks: []sandbox.Check{}, Silent: map[string]float64{}}}
	if why := box.Emulated(); why != nil {
		w.answer.Emulated = why.Error()
	}
	err := w.all(ctx)
	w.answer.Steps = box.Steps()
	switch failed, is := errors.AsType[*failure](err); {
	case is:
		w.answer.Reason, err = failed.reason, nil
	case errors.Is(err, machine.ErrLost): // the node starts over where nothing has it do that
		w.answer.Reason, err = err.Error(), nil
	default:
		w.answer.Passed = err == nil
	}
	return w.answer, err
}

func (w *walk) all(ctx context.Context) error {
	_, overlay, _ := w.box.Published()
	w.answer.From = End{overlay, w.box.Layer()}
	w.next("boot what the node runs now")
	if err := w.box.Start(ctx); err != nil {
		return err
	}
	if err := w.part(ctx, w.logInAndSettle); err != nil {
		return err
	}
	attributes := attributesOf(w.From)
	if w.To != nil {
		attributes = append(attributes, attributesOf(w.To)...)
	}
	w.next("take a picture")
	before, err := w.box.Picture(ctx, attributes)
	if err != nil {
		return err
	}
	w.next("publish what the site says, and let the node go its way")
	if err := w.there(ctx); err != nil {
		return err
	}
	w.next("run the checks")
	if err := w.check(ctx); err != nil {
		return err
	}
	to, _, _ := w.box.Published()
	w.next("go back by a hold")
	if err := w.box.GoBack(ctx); err != nil {
		return err
	}
	if err := w.part(ctx, w.arrive); err != nil {
		return err
	}
	w.next("take a picture again")
	after, err := w.box.Picture(ctx, attributes)
	if err != nil {
		return err
	}
	w.answer.Left = picture.Compare(before, after, slices.Concat(set(w.From.Overlay), set(to))...)
	return nil
}

// part does a part of the way within the time that it has. What the node does not do is a failure.
func (w *walk) part(ctx context.Context, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, w.Within)
	defer cancel()
	err := do(limited)
	switch down, is := errors.AsType[*sandbox.DownError](err); {
	case ctx.Err() != nil: // the machine ends with it, whatever the node does
		return cmp.Or(err, ctx.Err())
	case is:
		return &failure{down.Error()}
	case err != nil && limited.Err() != nil:
		return &failure{fmt.Sprintf("the node did not arrive within %s: %v", w.Within, err)}
	}
	return err
}

func (w *walk) logInAndSettle(ctx context.Context) error {
	if err := w.box.LogIn(ctx); err != nil {
		return err
	}
	return w.settle(ctx)
}

func (w *walk) settle(ctx context.Context) error {
	v, err := w.box.Settle(ctx)
	if err == nil && !v.Passed {
		return &failure{v.Reason}
	}
	return err
}

// there takes the node to what the site says, and notes what that took.
func (w *walk) there(ctx context.Context) error {
	was, err := w.marks(ctx)
	if err != nil {
		return err
	}
	if err := w.box.Offer(ctx, w.To); err != nil { // a build counts for nothing that the node does
		return err
	}
	to, overlay, _ := w.box.Published()
	w.answer.To = End{overlay, w.box.Layer()}
	w.say(ctx, to)
	ports, err := w.ports(ctx)
	if err != nil {
		return err
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	probe, begun, fetched := w.box.Probe(), time.Now(), w.box.Fetched()
	probe.Begin(asking, ports)
	err = w.part(ctx, w.arrive)
	w.answer.Silent, w.answer.Seconds, w.answer.Fetched = probe.Silent(),
		time.Since(begun).Round(100*time.Millisecond).Seconds(), w.box.Fetched()-fetched
	if err != nil {
		return err
	}
	is, err := w.marks(ctx)
	w.answer.Happened = happened(was, is)
	return err
}

// say notes the class that a plan says.
func (w *walk) say(ctx context.Context, to *spec.Overlay) {
	l := &release.Planned{Context: ctx, Read: w.box.ReadLayer, Say: func(string, ...any) {}}
	p := plan.NewDifferences(l).Plan(plan.Difference{Node: w.Node, From: w.From.Overlay, To: to})
	w.answer.Said, w.answer.Why = p.Class, p.Why
}

// waits is how long a node that was told to reboot has for that.
const waits = 3 * time.Minute

// arrive waits until the node runs what was published last and its gates are decided.
func (w *walk) arrive(ctx context.Context) error {
	_, _, generation := w.box.Published()
	_, _ = w.box.Run(ctx, "caisson-agent sync") // its exit code says less than the status does
	var told time.Time
	for {
		asked, cancel := context.WithTimeout(ctx, time.Minute)
		st, err := w.box.Status(asked)
		cancel()
		switch {
		case err != nil: // it starts over, or its agent does
			if err := w.box.LogIn(ctx); err != nil {
				return err
			}
		case st.Rejected != nil, st.Trial != nil && st.Trial.Undone != "",
			st.Generation >= generation && st.Staged == "" && st.Layer == w.box.Layer():
			return w.settle(ctx)
		case st.Activity == spec.ActivityWaiting("confirm"):
			_, _ = w.box.Run(ctx, "caisson-agent confirm") // the next status says whether it is
		case strings.HasPrefix(string(st.Activity), "waiting:") && time.Since(told) > waits:
			told = time.Now()
			_, _ = w.box.Run(ctx, "caisson-agent reboot") // the connection may end before it does
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Second):
		}
	}
}

// check runs the commands on the node.
func (w *walk) check(ctx context.Context) error {
	for _, command := range w.Checks {
		var c sandbox.Check
		err := w.part(ctx, func(ctx context.Context) (err error) {
			c, err = w.box.Check(ctx, command)
			return err
		})
		if err != nil {
			return err
		}
		w.answer.Checks = append(w.answer.Checks, c)
		if !c.Passed {
			return &failure{"check " + command}
		}
	}
	return nil
}

// ports are those on which the machine listens for TCP, but for those of the loopback.
func (w *walk) ports(ctx context.Context) (ports []uint16, err error) {
	table, err := w.box.Run(ctx, "cat /proc/net/tcp /proc/net/tcp6 || true")
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) < 4 || words[3] != "0A" { // LISTEN
			continue
		}
		address, text, _ := strings.Cut(words[1], ":")
		port, err := strconv.ParseUint(text, 16, 16)
		if err == nil && strings.Trim(address, "0") == "" && !slices.Contains(ports, uint16(port)) {
			ports = append(ports, uint16(port))
		}
	}
	return ports, err
}

// set names what an overlay sets in the kernel, as a picture does.
func set(o *spec.Overlay) []string {
	return slices.Concat(plain.Each(o.Items.Sysctl, func(s spec.Sysctl) string { return "sysctl " + rules.SysctlName(s.Key) }),
		plain.Each(o.Items.Sysfs, func(s spec.Sysfs) string { return "sysfs " + s.Path }),
		plain.Each(o.Items.Mounts, func(m spec.Mount) string { return "mount " + m.Target }))
}

func attributesOf(k *sandbox.Kept) []string {
	return plain.Each(k.Overlay.Items.Sysfs, func(s spec.Sysfs) string { return s.Path })
}

// Ends returns what is published for a node, and what publishing its site would give it; to is
// nil where the layer of that has yet to be built. then has the bootNetwork of the site as it was at
// a commit, nil where it cannot tell: the loader of what runs is older than an edit.
func Ends(ctx context.Context, w *preview.Preview, node string, then func(commit string) []spec.BootNetwork) (
	from, to *sandbox.Kept, err error) {
	if w.Publisher == nil {
		return nil, nil, cli.Usage("'caisson try' boots a node before anything is published",
			"nothing is published there yet, so that node %s runs nothing", node)
	}
	fleet, err := w.Publisher.Read(ctx, w.Policy)
	if err != nil {
		return nil, nil, err
	}
	row, there, err := fleet.Row(ctx, node)
	if err == nil && !there {
		err = cli.Usage("'caisson try' boots a node before anything is published", "nothing is published for node %s", node)
	}
	if err != nil {
		return nil, nil, err
	}
	content := spec.Content{Overlay: row.Overlay, Size: row.Size, Layer: row.Layer, Generation: row.Generation}
	if from, err = sandbox.ReadKept(ctx, fleet, w.Publisher.Registry, node, content); err != nil {
		return nil, nil, err
	}
	commit := "" // of what is no longer kept nothing is known
	g := published.Generation{Epoch: fleet.Floor().Epoch, Number: row.Generation}
	if past, err := fleet.Past(ctx, g); err == nil && past.Root.Change != nil {
		commit = past.Root.Change.Commit
	}
	from.Boot = then(commit)
	layers, err := w.Publisher.Layers(ctx, w.Policy, w.Layer)
	if err != nil && !errors.Is(err, oci.ErrNotFound) {
		return nil, nil, err
	}
	variants, err := w.Site.Variants()
	if err != nil {
		return nil, nil, err
	}
	v := variants[slices.IndexFunc(variants, func(v site.Variant) bool { return slices.Contains(v.Nodes, node) })]
	l, err := release.ForVariant(layers, site.RecipeID(v.Recipe), v.Name)
	if err != nil || digest.Hex(l.Recipe) != site.RecipeID(v.Recipe) {
		return from, nil, nil //nolint:nilerr // it has to be built
	}
	o, err := w.Site.Overlay(node, l.Digest)
	if err != nil {
		return nil, nil, err
	}
	o.Variant = l.Variant
	doc, err := spec.Encode(o)
	if err == nil && digest.Of(doc) == row.Overlay {
		err = cli.Usage("'caisson plan' says what differs", "publishing the site would change nothing on node %s", node)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("rehearse: %w", err)
	}
	return from, &sandbox.Kept{Overlay: o, Layer: l, From: w.Publisher.Registry}, nil
}
