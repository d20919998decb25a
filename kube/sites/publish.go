// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// work is a site beside what is published of it.
type work struct {
	site      *site.Site
	policy    published.Policy
	publisher *publish.Publisher
	fleet     *published.Fleet // as it is published
	plan      *plan.Plan
	nodes     []publish.Node // nil where they cannot be compiled: a layer has to be built
	noNodes   error          // why
	digest    string         // of what nodes would get, and in the place of what
	notLooked []string       // secrets whose values may have changed
	notAsked  []string       // of which files no program of a layer was asked, and why
}

// plan says of the Site what publishing it would change, and publishes where that may be.
func (r *Reconciler) plan(ctx context.Context, o objects, s *site.Site, all map[object.Key]*object.Verdict) {
	v := all[object.Key{Kind: cluster.Site, Name: o.site.GetName()}]
	v.More = map[string]any{}
	w, err := r.open(ctx, o, s)
	if err != nil {
		v.CannotPlan(err)
		return
	}
	v.Looked = true
	fleet, err := w.fleet, r.compare(ctx, o, w)
	if err != nil {
		v.CannotPlan(err)
	} else {
		w.say(v)
	}
	switch moving := underWay(w.fleet); {
	case moving != "": // its plan was signed, whatever the objects say
		fleet, err = r.step(ctx, o, w, moving, v)
	case err == nil:
		fleet, err = r.publish(ctx, o, w, v)
	default:
		err = nil // it is said of the plan
	}
	if err != nil {
		v.Set(object.Published, false, "CannotPublish", "%s", object.Hinted(err))
	}
	if floor := fleet.Floor(); floor.Generation > 0 {
		v.More["generation"] = int64(floor.Generation)
	}
	r.progress(ctx, fleet, v)
}

// say says what publishing would change.
func (w *work) say(v *object.Verdict) {
	changes, words := count(w.plan)
	var left []string // they keep what they have
	for _, l := range w.site.Fleet().Left {
		left = append(left, l.Name)
	}
	words += listed("; left out, see status.problems: ", left) + listed("; not looked at: secret ", w.notLooked)
	words = strings.Join(append([]string{words}, w.notAsked...), "; ")
	v.More["changes"], v.More["message"] = changes, words
	switch {
	case !w.plan.Changed():
		v.Set(object.Planned, true, "UpToDate", "%s", words)
	case w.noNodes != nil:
		v.Set(object.Planned, true, "LayerMissing", "%s; %s", words, object.Hinted(w.noNodes))
	default:
		v.Set(object.Planned, true, "Changes", "%s", words)
		v.More["plan"] = w.digest
	}
}

// layer is the reference of the layers that are published.
const layer = "current"

// open reads what is published of a site.
func (r *Reconciler) open(ctx context.Context, o objects, s *site.Site) (*work, error) {
	w := &work{site: s}
	var err error
	if s.Registry() == "" {
		return nil, errors.New("the Site names no registry: write registry: host[:port]/prefix")
	}
	if w.policy, err = policy.Site(s, ""); err != nil {
		return nil, fmt.Errorf("whose keys count is said beside caisson-kube, not in objects: %w", err)
	}
	registry, err := r.Open(s.Registry())
	if err != nil {
		return nil, err
	}
	seen, err := published.OpenMemory(filepath.Join(r.State, o.namespace+".memory"))
	if err != nil {
		return nil, err
	}
	say := log.FromContext(ctx)
	reader := published.Reader{Registry: registry, Signers: r.Signers, Now: r.time(), Memory: seen, NewFleet: r.NewFleet,
		Say: func(format string, args ...any) { say.Info(fmt.Sprintf(format, args...), "namespace", o.namespace) }}
	w.publisher = &publish.Publisher{Reader: reader, Clock: r.time, Author: "caisson-kube"}
	if w.fleet, err = w.publisher.Read(ctx, w.policy); err == nil && w.policy.Beside {
		w.policy = w.fleet.Policy() // the keys that count, for approvals
	}
	return w, err
}

// compare asks the functions of 'caisson plan'.
func (r *Reconciler) compare(ctx context.Context, o objects, w *work) (err error) {
	if w.notLooked, err = r.seal(ctx, o, w.site); err != nil {
		return err
	}
	if w.plan, err = w.preview().Plan(ctx, nil); err != nil {
		return err
	}
	if len(r.Signers) == 0 && len(w.site.Secrets()) > 0 && losesSecrets(w.plan) {
		return errSealedElsewhere
	}
	if w.nodes, w.noNodes = w.publisher.Compile(ctx, w.site, w.policy, layer); w.noNodes != nil {
		return nil
	}
	if err := r.ask(ctx, w); err != nil {
		return err
	}
	w.digest, err = w.preview().Digest(w.fleet, w.fleet.Floor(), w.nodes)
	return err
}

// ask has the programs of the layers look at files of the changed nodes, those of services among
// them, where the state directory has a builder's cache, and keeps what nobody was asked about.
func (r *Reconciler) ask(ctx context.Context, w *work) error {
	brought := content.Source{Cache: r.State, Say: func(format string, args ...any) {
		w.notAsked = append(w.notAsked, fmt.Sprintf(format, args...))
	}}
	unasked, err := w.preview().Ask(ctx, w.changed(), r.State, brought.TextsOn)
	w.notAsked = append(w.notAsked, unasked...)
	return err
}

// changed returns the nodes that would get another overlay or layer.
func (w *work) changed() []publish.Node {
	changed := map[string]bool{}
	for _, n := range w.plan.Nodes {
		changed[n.Name] = changes(n)
	}
	return slices.DeleteFunc(slices.Clone(w.nodes), func(n publish.Node) bool { return !changed[n.Name] })
}

func (w *work) preview() preview.Preview {
	return preview.Preview{Site: w.site, Publisher: w.publisher, Policy: w.policy, Layer: layer}
}

// count says how many nodes a plan changes, by how much that disturbs them.
func count(p *plan.Plan) (by map[string]any, words string) {
	n, by := map[string]int64{}, map[string]any{}
	for _, node := range p.Nodes {
		if changes(node) {
			n[node.Class]++
		}
	}
	var parts []string
	for _, class := range slices.Sorted(maps.Keys(n)) {
		by[class] = n[class]
		parts = append(parts, fmt.Sprintf("%d %s", n[class], class))
	}
	if len(parts) == 0 {
		return by, nodes(len(p.Nodes)) + ", nothing to publish"
	}
	return by, fmt.Sprintf("%s, to change: %s", nodes(len(p.Nodes)), strings.Join(parts, ", "))
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// changes reports whether a plan changes a node now.
func changes(n plan.NodePlan) bool { return len(n.Changes) > 0 && n.Held == "" }

// listed names what there is of something, "" for none.
func listed(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return what + strings.Join(names, ", ")
}

// step takes the next step of a rollout that moves nodes, where there is a signer: publishing
// waits until it ends.
func (r *Reconciler) step(ctx context.Context, o objects, w *work, moving string, v *object.Verdict) (*published.Fleet, error) {
	if len(r.Signers) == 0 {
		v.Set(object.Published, false, "RolloutUnderWay", "rollout %s moves nodes: publishing waits until it ends", moving)
		return w.fleet, nil
	}
	moved, waits, err := r.move(ctx, o, w, moving)
	if err != nil {
		return w.fleet, fmt.Errorf("rollout %s: %w", moving, err)
	}
	v.Set(object.Published, false, "RolloutUnderWay", "rollout %s: %s", moving, waits)
	if !moved {
		return w.fleet, nil
	}
	was, err := r.begun(o.namespace)
	if err != nil {
		return w.fleet, err
	}
	return r.went(ctx, o, w, was)
}

// publish signs where there is a signer and, if that is asked for, an approval of just this.
func (r *Reconciler) publish(ctx context.Context, o objects, w *work, v *object.Verdict) (*published.Fleet, error) {
	fleet := w.fleet
	before := fleet.Floor()
	step, err := r.agreed(o, w)
	if err != nil {
		return fleet, err
	}
	switch {
	case !w.plan.Changed():
		v.Set(object.Published, true, "Published", "generation %d is what the objects say", before.Generation)
	case w.noNodes != nil:
		v.Set(object.Published, false, "LayerMissing", "%s", object.Hinted(w.noNodes))
	case len(r.Signers) == 0:
		v.Set(object.Published, false, "NobodySigns", "caisson publish --from-cluster --namespace %s --plan %s", o.namespace, w.digest)
	case r.needs(w.site) > Unasked && !step.approved:
		v.Set(object.Published, false, "WaitsForApproval", "%s", step.missing)
	default:
		var from *spec.Floor
		if r.needs(w.site) > Unasked { // it is for what was published then
			from = &before
		}
		name, covered, err := r.start(ctx, w, step.by, from)
		if err != nil {
			return fleet, err
		}
		if name != "" {
			v.Set(object.Published, false, "RolloutUnderWay", "rollout %s has started", name)
			return r.went(ctx, o, w, step.begun)
		}
		options := publish.Options{By: step.by, From: from, Keep: func(node string) bool { return w.site.Fleet().WhyLeftOut(node) != "" }}
		if len(covered) > 0 { // the others first
			options.Only = func(node string) bool { return !covered[node] }
		}
		result, err := w.publisher.Publish(ctx, w.policy, w.nodes, options)
		if err != nil {
			return fleet, err
		}
		v.Set(object.Published, true, "Published", "generation %d: %s changed, %d held", result.Generation,
			nodes(len(result.Published)), len(result.Held))
		return r.went(ctx, o, w, step.begun)
	}
	return fleet, nil
}

// progress says which rollouts move nodes, and whether a publish was cut.
func (r *Reconciler) progress(ctx context.Context, fleet *published.Fleet, v *object.Verdict) {
	unfinished, err := fleet.Unfinished(ctx)
	var names []string
	for name, one := range fleet.Rollouts() {
		if !one.Ended() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	switch {
	case err != nil:
		v.Set(object.Progressing, false, "Unknown", "%s", object.Hinted(err))
	case unfinished != "":
		v.Set(object.Progressing, true, "Publishing", "%s", unfinished)
	case len(names) > 0:
		v.Set(object.Progressing, true, "RolloutUnderWay", "rollout %s: 'caisson rollout status' has its waves", strings.Join(names, ", "))
	default:
		v.Set(object.Progressing, false, "Idle", "no rollout is under way")
	}
}

// errSealedElsewhere is said where nodes have secrets, and what was sealed is not known.
var errSealedElsewhere = errors.New("nodes have secrets, and the namespace's directory has no secrets.lock and " +
	"recipients.lock of whoever publishes: 'caisson plan --from-cluster' says what would change")

// sealer has a site's overlays hold what is sealed already; nil where the site has no secrets.
// A signer keeps sealed values where it remembers what it published. Else it is what
// lies beside the keys, as somebody published it.
func (r *Reconciler) sealer(o objects, s *site.Site) (*seal.Sealer, error) {
	if len(s.Secrets()) == 0 {
		return nil, nil
	}
	beside := seal.Beside{Recipients: s.Dir(), Lock: s.Dir(), Key: s.Dir()}
	if len(r.Signers) > 0 {
		beside.Lock = filepath.Join(r.State, o.namespace+".secrets")
		beside.Key = beside.Lock
		if err := os.MkdirAll(beside.Lock, 0o700); err != nil {
			return nil, err
		}
	}
	x, err := seal.OpenAt(s, beside)
	if err != nil {
		return nil, fmt.Errorf("read what is sealed: %w", err)
	}
	return x, nil
}

// seal seals the secrets of a site where this instance signs, and returns those that were not
// looked at. What it sealed is written down before its digest is shown.
func (r *Reconciler) seal(ctx context.Context, o objects, s *site.Site) (notLooked []string, err error) {
	x, err := r.sealer(o, s)
	if x == nil || err != nil {
		return nil, err
	}
	if x.Must = len(r.Signers) > 0; x.Must && r.Secret != nil {
		x.Cluster = func(ctx context.Context, ref site.SecretRef) ([]byte, error) {
			return r.Secret(ctx, o.namespace, ref.Name, ref.Key)
		}
	}
	if err := x.Seal(ctx, s.Fleet().Names()); err != nil {
		return nil, err
	}
	if x.Must {
		err = x.Write()
	}
	return x.NotLooked(), err
}

// losesSecrets reports whether a plan takes secrets away: nobody does that who does not know
// what was sealed.
func losesSecrets(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Nodes, func(n plan.NodePlan) bool {
		return slices.ContainsFunc(n.Changes, func(c plan.Change) bool { return c.Item == "secret" && c.Action == spec.ActionRemove })
	})
}
