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
	return p.RunAlone(ctx, policy, why, func(ctx context.Context, r *Run) error {
		if policy.Beside {
			policy = r.State.Policy
			if err := r.Publisher.checkSigners(policy); err != nil {
				return err
			}
		}
		return r.publish(ctx, policy, nodes, o)
	})
}

func (r *Run) publish(ctx context.Context, policy published.Policy, nodes []Node, o Options) error {
	p, v := r.Publisher, r.State
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
	r.Begin("publish", o.By, x)
	s := &selected{Run: r, policy: policy, o: o}
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
	renewed, err := r.RenewKept(ctx, s.held, func(node string) bool { return o.All || r.torn[node] })
	if err != nil {
		return err
	}
	if err := r.checkLayers(ctx, s.Plan.Todo, o.LayerNamed); err != nil {
		return err
	}
	s.Plan.Todo, s.Plan.first = append(s.Plan.Todo, renewed...), o.First
	s.rows, s.listed = nil, nil // those of a large fleet are not to be held to the end
	if err := r.Write(ctx, policy); err != nil {
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
	*Run
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
			s.Publisher.Say("node %s stays as it is: it has an identifier that node %s keeps", n.Name, owner[tags[i]])
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
		s.Result.Kept = append(s.Result.Kept, name)
		if s.o.All || s.isOld(row.Expires, s.policy.Lifetime) || s.torn[name] {
			s.held = append(s.held, name) // what has to be renewed
		}
	}
	return nil
}

// add sorts nodes. The overlays of some are made at a time, which are then kept where they change.
func (s *selected) add(ctx context.Context, nodes []Node) error {
	for some := range slices.Chunk(nodes, 1<<10) {
		var todo []Work
		for _, n := range some {
			if w := s.workOf(n); w != nil {
				todo = append(todo, *w)
			}
		}
		wrong := make([]error, len(todo))
		if err := index.Each(ctx, len(todo), func(_ context.Context, i int) error {
			wrong[i] = todo[i].setDocument(todo[i].Doc)
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
func (s *selected) workOf(n Node) *Work {
	was, known := s.rows[n.Name]
	if s.o.Only != nil && !s.o.Only(n.Name) {
		if known && !s.torn[n.Name] {
			s.Result.Unchanged++
		}
		return nil
	}
	holds, over := published.SplitHolds(was.Holds, s.Publisher.Now)
	if len(over) > 0 {
		s.Result.Ended = append(s.Result.Ended, HoldLine{n.Name, over})
		s.Plan.Rows = true
		was.Holds = holds
		s.Plan.Index.Set(n.Name, was)
	}
	if len(holds) > 0 {
		s.Result.Held = append(s.Result.Held, HoldLine{n.Name, holds})
		if s.o.All || s.isOld(was.Expires, s.policy.Lifetime) || s.torn[n.Name] || published.HoldOf(over, spec.HoldPause) != nil {
			s.held = append(s.held, n.Name)
		}
		return nil
	}
	w := &Work{Node: n, Generation: s.Plan.Index.Root.Generation}
	if known {
		w.Was = &was
	}
	if s.o.Confirm != nil {
		w.Doc = func() ([]byte, error) { return s.withConfirm(n, was.Overlay) }
	}
	return w
}

// settle keeps the work of a node that changes, or whose signature is old.
func (s *selected) settle(w Work) error {
	was, same := w.Was, w.Was != nil && w.Was.Overlay == w.Overlay
	if same && !s.o.All && !s.torn[w.Name] {
		if list := s.State.Rejected(); slices.Contains(list, was.Overlay) || slices.Contains(list, was.Layer) {
			s.rejected = append(s.rejected, w.Name)
		}
		if !s.isOld(was.Expires, s.policy.Lifetime) {
			s.Result.Unchanged++
			return nil
		}
		w.Generation, w.resigned = was.Generation, true
	}
	if r := s.underWay[w.Name]; r != "" && !same {
		return cli.Hint("'caisson rollout status' tells how far it is; 'caisson rollout abort' ends it; --node and --set publish others",
			"node %s is part of rollout %s, which is %w", w.Name, r, errUnderWay)
	}
	s.Plan.Todo = append(s.Plan.Todo, w)
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
		if !s.listed[name] && !slices.Contains(s.Result.Kept, name) {
			s.Plan.Index.Remove(name)
			s.Plan.Rows = true
			s.Result.Left = append(s.Result.Left, name)
		}
	}
}

// repairOthers puts right what a cut publish left with nodes that are not published now: they
// get again what their row says.
func (s *selected) repairOthers() {
	for _, name := range slices.Sorted(maps.Keys(s.torn)) {
		if s.o.Only != nil && !s.o.Only(name) {
			s.held = append(s.held, name)
		}
	}
}

// isOld reports whether a signature has used up two thirds of its life.
func (r *Run) isOld(expires int64, lifetime time.Duration) bool {
	return time.Unix(expires, 0).Sub(r.Publisher.Now) < lifetime/3
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
