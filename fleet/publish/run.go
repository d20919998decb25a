// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"context"
	"crypto"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// By names the author of a change, its reason and commit, for the history.
type By struct {
	Author string
	Reason string
	Commit string // of the site that is published, as [spec.FleetChange] has it
}

// Options of [Publisher.Publish].
type Options struct {
	By
	All        bool                            // new generations also for what did not change
	Only       func(string) bool               // nodes to publish, the others stay as they are; nil is all
	Keep       func(string) bool               // nodes that are not among those to publish, and keep their rows all the same; nil is none
	Epoch      uint64                          // go to this epoch; 0 keeps the present one
	EpochKey   crypto.Signer                   // permits it
	LayerNamed bool                            // the layer was named by digest: it may be older than what nodes have
	First      func(ctx context.Context) error // brings what overlays name, while nobody else publishes or prunes; nil is nothing
	Confirm    *spec.Confirm                   // for nodes that change; nil asks nobody
	From       *spec.Floor                     // what was given out last when somebody agreed to this; nil: whatever it is
}

// Publish gives the nodes their overlays. Nodes that are held keep their content.
// Nodes that are published but not among them leave the index, unless Only names
// some, or Keep them.
func (p *Publisher) Publish(ctx context.Context, policy published.Policy, nodes []Node, o Options) (*Result, error) {
	if err := p.MayPublish(policy); err != nil {
		return nil, err
	}
	if o.Epoch > 0 && o.Only != nil {
		return nil, cli.Hint("publish all nodes", "a higher epoch is for every node")
	}
	policy.Site = true
	why := published.Purpose{Publish: true, Raise: o.Epoch > 0}
	return p.runAlone(ctx, policy, why, func(ctx context.Context, r *run) error {
		if policy.Beside {
			policy = r.v.Policy
			if err := r.p.checkSigners(policy); err != nil {
				return err
			}
		}
		return r.publish(ctx, policy, nodes, o)
	})
}

func (r *run) publish(ctx context.Context, policy published.Policy, nodes []Node, o Options) error {
	p, v := r.p, r.v
	fresh := v.Index == nil
	if fresh {
		v.Index = index.New(spec.FleetIndex{Fleet: policy.Fleet})
	}
	old := v.Index.Root
	if err := checkFrom(o.From, old); err != nil {
		return err
	}
	x := v.Index.Fork()
	x.Root = spec.FleetIndex{
		APIVersion: spec.APIVersion, Kind: spec.KindFleetIndex, Fleet: policy.Fleet,
		Epoch: old.Epoch, Generation: max(old.Generation, v.Seen.Reserved) + 1, Grant: old.Grant,
		Threshold: policy.Threshold, Operator: sign.PEMs(policy.Operator), Release: sign.PEMs(policy.Release),
		Lifetime: int64(policy.Lifetime / time.Second), Change: old.Change, Foreign: old.Foreign, Rollouts: old.Rollouts, Shards: x.Root.Shards,
	}
	if o.Epoch > 0 {
		if err := raiseEpoch(&x.Root, policy, o); err != nil {
			return err
		}
		o.All = true // every node must move, or it would be below the floor
	}
	r.begin("publish", o.By, x)
	s := &selected{run: r, policy: policy, o: o}
	var err error
	if s.rows, err = v.Index.All(ctx); err != nil {
		return err
	}
	if s.underWay, err = r.UnderWay(ctx); err != nil {
		return err
	}
	if err := s.addAll(ctx, nodes); err != nil {
		return err
	}
	s.dropLeft()
	s.repairOthers()
	renewed, err := r.renewKept(ctx, s.held, func(node string) bool { return o.All || v.torn[node] })
	if err != nil {
		return err
	}
	if err := r.checkLayers(ctx, s.plan.todo, o.LayerNamed); err != nil {
		return err
	}
	s.plan.todo, s.plan.first = append(s.plan.todo, renewed...), o.First
	s.rows, s.listed = nil, nil // those of a large fleet are not to be held to the end
	if err := r.write(ctx, policy); err != nil {
		return err
	}
	if len(s.rejected) > 0 {
		p.Say("what the site says of %s is published and on the reject list, so nodes refuse it: change it, or take it off "+
			"the list by 'caisson refresh --allow'", plain.Some(s.rejected, 5))
	}
	if fresh {
		p.Say("%s: a new fleet %s", p.Registry.Ref(), policy.Fleet)
	}
	return nil
}

// checkFrom refuses what was agreed to when something else was published.
func checkFrom(from *spec.Floor, is spec.FleetIndex) error {
	if from == nil || *from == (spec.Floor{Epoch: is.Epoch, Generation: is.Generation}) {
		return nil
	}
	return cli.Hint("look at the plan again", "this was agreed to at generation %d of epoch %d, and generation %d of epoch "+
		"%d was given out meanwhile", from.Generation, from.Epoch, is.Generation, is.Epoch)
}

// selected sorts the nodes of a publish: what changes, what is held, what stays.
type selected struct {
	*run
	policy   published.Policy
	o        Options
	rows     index.Rows
	listed   map[string]bool   // nodes of the site
	underWay map[string]string // nodes of rollouts, with its name: what changes them is its to publish
	held     []string          // nodes that need a signature over what they have
	rejected []string          // nodes that keep what is on the reject list
}

// addAll sorts the nodes of a site, and those that stay though they are not among them
// ([Options.Keep]): who they are is in doubt where the site is read from. Two rows must never be
// found by one machine, so a node that has an identifier of one of these stays as it is, too.
func (s *selected) addAll(ctx context.Context, nodes []Node) error {
	s.listed = make(map[string]bool, len(nodes))
	for _, n := range nodes {
		s.listed[n.Name] = true
	}
	stays, owner := map[string]bool{}, map[string]string{} // owner is by what a machine may claim to be
	for name, row := range s.rows {
		if s.o.Keep != nil && s.o.Keep(name) && !s.listed[name] {
			stays[name] = true
			for _, tag := range trust.AliasTags(row.Match.MACs, row.Match.UUIDs) {
				owner[tag] = name
			}
		}
	}
	if err := s.add(ctx, slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool {
		tags := trust.AliasTags(n.Match.MACs, n.Match.UUIDs)
		i := slices.IndexFunc(tags, func(tag string) bool { return owner[tag] != "" })
		if i >= 0 {
			s.p.Say("node %s stays as it is: it has an identifier that node %s keeps", n.Name, owner[tags[i]])
			stays[n.Name] = true
		}
		return i >= 0
	})); err != nil {
		return err
	}
	if s.o.Only != nil {
		return nil // those are as all others that are not named
	}
	for _, name := range slices.Sorted(maps.Keys(stays)) {
		row, known := s.rows[name]
		if !known {
			continue
		}
		s.result.Kept = append(s.result.Kept, name)
		if s.o.All || s.isOld(row.Expires, s.policy.Lifetime) || s.v.torn[name] {
			s.held = append(s.held, name) // what has to be renewed
		}
	}
	return nil
}

// add sorts nodes. The overlays of some are made at a time, which are then kept where they change.
func (s *selected) add(ctx context.Context, nodes []Node) error {
	for some := range slices.Chunk(nodes, 1<<10) {
		var todo []work
		for _, n := range some {
			if w := s.workOf(n); w != nil {
				todo = append(todo, *w)
			}
		}
		wrong := make([]error, len(todo))
		if err := index.Each(ctx, len(todo), func(_ context.Context, i int) error {
			wrong[i] = todo[i].setDocument(todo[i].doc)
			return nil
		}); err != nil {
			return err
		}
		for i, w := range todo { // the first of the site is named, whichever was made first
			if err := cmp.Or(wrong[i], s.settle(w)); err != nil {
				return err
			}
		}
	}
	return nil
}

// workOf returns the work of a node, nil where it is not to get what the site says.
func (s *selected) workOf(n Node) *work {
	was, known := s.rows[n.Name]
	if s.o.Only != nil && !s.o.Only(n.Name) {
		if known && !s.v.torn[n.Name] {
			s.result.Unchanged++
		}
		return nil
	}
	holds, over := published.SplitHolds(was.Holds, s.p.Now)
	if len(over) > 0 {
		s.result.Ended = append(s.result.Ended, HoldLine{n.Name, over})
		s.plan.rows = true
		was.Holds = holds
		s.plan.index.Set(n.Name, was)
	}
	if len(holds) > 0 {
		s.result.Held = append(s.result.Held, HoldLine{n.Name, holds})
		if s.o.All || s.isOld(was.Expires, s.policy.Lifetime) || s.v.torn[n.Name] || published.HoldOf(over, spec.HoldPause) != nil {
			s.held = append(s.held, n.Name)
		}
		return nil
	}
	w := &work{name: n.Name, match: n.Match, layer: n.Layer, knows: n.Knows, generation: s.plan.index.Root.Generation,
		doc: n.Doc}
	if known {
		w.was = &was
	}
	if s.o.Confirm != nil {
		w.doc = func() ([]byte, error) { return s.withConfirm(n, was.Overlay) }
	}
	return w
}

// settle keeps the work of a node that changes, or whose signature is old.
func (s *selected) settle(w work) error {
	was, same := w.was, w.was != nil && w.was.Overlay == w.overlay
	if same && !s.o.All && !s.v.torn[w.name] {
		if list := s.v.Rejected(); slices.Contains(list, was.Overlay) || slices.Contains(list, was.Layer) {
			s.rejected = append(s.rejected, w.name)
		}
		if !s.isOld(was.Expires, s.policy.Lifetime) {
			s.result.Unchanged++
			return nil
		}
		w.generation, w.resigned = was.Generation, true
	}
	if r := s.underWay[w.name]; r != "" && !same {
		return cli.Hint("'caisson rollout status' tells how far it is; 'caisson rollout abort' ends it; --node and --set publish others",
			"node %s is part of rollout %s, which is %w", w.name, r, errUnderWay)
	}
	s.plan.todo = append(s.plan.todo, w)
	return nil
}

// withConfirm returns a node's overlay, one that waits for an operator where that is wanted
// and it is not what the node has.
func (s *selected) withConfirm(n Node, has string) ([]byte, error) {
	doc, err := n.Doc()
	if err != nil || has == oci.Digest(doc) {
		return doc, err
	}
	var o spec.Overlay
	if err := spec.Decode(doc, &o); err != nil {
		return nil, err
	}
	o.Confirm = s.o.Confirm
	o.SetNeeds()
	return spec.Encode(o)
}

// dropLeft takes the rows away of nodes that are not the site's any more.
func (s *selected) dropLeft() {
	if s.o.Only != nil {
		return
	}
	for name := range s.rows {
		if !s.listed[name] && !slices.Contains(s.result.Kept, name) {
			s.plan.index.Remove(name)
			s.plan.rows = true
			s.result.Left = append(s.result.Left, name)
		}
	}
}

// repairOthers puts right what a cut publish left with nodes that are not published now: they
// get again what their row says.
func (s *selected) repairOthers() {
	for _, name := range slices.Sorted(maps.Keys(s.v.torn)) {
		if s.o.Only != nil && !s.o.Only(name) {
			s.held = append(s.held, name)
		}
	}
}

// isOld reports whether a signature has used up two thirds of its life.
func (f *base) isOld(expires int64, lifetime time.Duration) bool {
	return time.Unix(expires, 0).Sub(f.p.Now) < lifetime/3
}

func raiseEpoch(x *spec.FleetIndex, policy published.Policy, o Options) error {
	if o.Epoch <= x.Epoch {
		return cli.Hint("an epoch only rises", "the fleet is at epoch %d already", x.Epoch)
	}
	if o.EpochKey == nil {
		return cli.Hint("give --epoch-key", "a higher epoch needs the epoch key's permission")
	}
	if _, ok := sign.Find(policy.Epoch, o.EpochKey.Public()); !ok {
		return cli.Hint("nodes trust those that their bootstrap was made with", "the epoch key is not one of trust.keys.epoch of the site")
	}
	grant, err := sign.SignEpoch(o.EpochKey, sign.EpochPredicate{Fleet: x.Fleet, Epoch: o.Epoch})
	x.Epoch, x.Grant = o.Epoch, grant
	if x.Generation > published.FarAhead*published.FarAhead { // somebody ran ahead; nodes compare generations within an epoch
		x.Generation = 1
	}
	return err
}
