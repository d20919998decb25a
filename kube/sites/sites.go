// SPDX-License-Identifier: Apache-2.0

// Package sites reads each namespace as a fleet's site, and says in the objects' own status
// what is wrong with them, what publishing them would change, and what is published.
//
// It decides nothing about a site: package cluster of caisson reads objects as files, and
// the same functions compare, plan and publish that the command line calls. Without a
// signer it publishes nothing, and says the plan that somebody else may. Nothing that a
// status says is ever read back for a decision: a forged one changes what people
// see until the next look, and no node.
package sites

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// Reconciler looks after the sites of namespaces.
type Reconciler struct {
	Client client.Client // reads what it has in memory
	Events events.EventRecorder
	Dir    string // has a directory for each namespace, with keys and the lock of services
	State  string // directory in which is remembered what was published
	Open   func(ref string) (*registry.Registry, error)

	Observed

	// Registries are those of fleets whose sites are not objects, by namespace: Published reads them.
	Registries map[string]string

	// Secret returns the value of a key of a Secret, for a site whose secrets are such; nil
	// where none is read. It is asked where this instance signs alone.
	Secret func(ctx context.Context, namespace, name, key string) ([]byte, error)

	Signing
	Again time.Duration // looks again after this long, whatever changes
	Now   func() time.Time
	Seen  Seen // what was done is counted

	known      cluster.Known
	watchNodes func() error // has changes of Nodes looked at, once; nil before [Reconciler.Watch]
}

// Observed holds the state of a namespace's nodes as rollouts see it.
type Observed struct {
	// Reports returns what nodes reported last; nil where no service is known.
	Reports func(ctx context.Context, namespace string, asked report.Asked) (map[string]report.Standing, error)
	// Slots returns the nodes that hold a slot, with its group. It is there where Reports is.
	Slots func(ctx context.Context, namespace string) (map[string]string, error)
	// Prometheus is asked what analyses compare, by namespace.
	Prometheus map[string]*analysis.Client
}

// Signing is by whose keys a fleet is published, and who has to agree.
type Signing struct {
	Signers  []crypto.Signer // nobody: then nothing is published here
	Approval Approval        // a Site may ask for more
	NewFleet bool            // a registry without a fleet gets its first one
}

// time returns the time that is signed, in whole seconds.
func (r *Reconciler) time() time.Time { return r.Now().UTC().Truncate(time.Second) }

// Seen counts what was done.
type Seen interface {
	Looked(namespace string, took time.Duration, err error)
	Site(namespace string, conditions map[string]bool, generation int64)
}

// objects are those of one namespace.
type objects struct {
	namespace string
	all       []*unstructured.Unstructured // of the kinds of a site
	site      *unstructured.Unstructured   // nil where there is none, or more than one
	approvals []unstructured.Unstructured
}

// list returns the objects of a kind. They are the cache's, and only read.
func (r *Reconciler) list(ctx context.Context, kind string, in ...client.ListOption) ([]unstructured.Unstructured, error) {
	var l unstructured.UnstructuredList
	l.SetGroupVersionKind(object.GVK(kind + "List"))
	if err := r.Client.List(ctx, &l, append(in, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list objects of kind %s: %w", kind, err)
	}
	return l.Items, nil
}

func (r *Reconciler) read(ctx context.Context, namespace string) (o objects, err error) {
	o.namespace = namespace
	for _, k := range cluster.Kinds() {
		if !k.Doc {
			continue
		}
		items, err := r.list(ctx, k.Kind, client.InNamespace(namespace))
		if err != nil {
			return o, err
		}
		for i := range items {
			if items[i].GetDeletionTimestamp() == nil {
				o.all = append(o.all, &items[i])
			}
		}
	}
	o.site = onlySite(o.all)
	return o, nil
}

// onlySite returns the one Site of objects, nil where there is none, or more than one.
func onlySite(all []*unstructured.Unstructured) *unstructured.Unstructured {
	found := slices.DeleteFunc(slices.Clone(all), func(u *unstructured.Unstructured) bool { return u.GetKind() != cluster.Site })
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// patience is how long a look may take, with all that it asks of a registry.
const patience = 10 * time.Minute

// Reconcile looks at the namespace of that name.
func (r *Reconciler) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	began := time.Now()
	again, err := r.reconcile(ctx, q)
	r.Seen.Looked(q.Name, time.Since(began), err)
	return again, err
}

func (r *Reconciler) reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o, err := r.read(ctx, q.Name)
	if err == nil {
		o.approvals, err = r.list(ctx, cluster.PublishApproval, client.InNamespace(q.Name))
	}
	if err != nil || len(o.all) == 0 {
		if err == nil {
			r.count(o, nil)
		}
		return reconcile.Result{}, err
	}
	s, problems, taken, err := r.parse(ctx, o)
	if err != nil {
		return reconcile.Result{}, err
	}
	v := object.Verdicts(o.all, problems, taken)
	if s != nil && taken == "" {
		r.plan(ctx, o, s, v)
	}
	r.count(o, v)
	return reconcile.Result{RequeueAfter: r.again(v)}, object.Write(ctx, r.Client, r.Events, r.Now(), v)
}

// count notes how the Site of a namespace is; of several none counts.
func (r *Reconciler) count(o objects, all map[object.Key]*object.Verdict) {
	conditions, generation := map[string]bool{}, int64(0)
	if o.site != nil {
		v := all[object.Key{Kind: cluster.Site, Name: o.site.GetName()}]
		for _, c := range v.Conditions {
			conditions[c.Type] = c.Status == metav1.ConditionTrue
		}
		generation, _ = v.More["generation"].(int64) // 0 where it is not known
	}
	r.Seen.Site(o.namespace, conditions, generation)
}

// parse reads a namespace as a site, and says which other one had its fleet before.
func (r *Reconciler) parse(ctx context.Context, o objects) (s *site.Site, problems []cluster.Problem, taken string, err error) {
	if s, problems, err = r.parseAt(ctx, cluster.Day(r.Now()), o); err != nil {
		return nil, nil, "", err
	}
	taken, err = r.taken(ctx, o)
	return s, problems, taken, err
}

// parseAt reads a namespace as a site of a day.
func (r *Reconciler) parseAt(ctx context.Context, at time.Time, o objects) (*site.Site, []cluster.Problem, error) {
	var failed error
	dir := filepath.Join(r.Dir, o.namespace)
	reader := cluster.Reader{Files: hostFiles{}, Known: &r.known, Keys: cluster.KeysBeside(hostFiles{}, dir),
		Nodes: func() (nodes []cluster.Member, err error) {
			nodes, failed = r.members(ctx)
			return nodes, failed
		}}
	s, problems := reader.Parse(at, dir, nil, documents(o.all))
	return s, problems, failed
}

// again is when a namespace is looked at next if nothing changes: soon, where more is to be
// done.
func (r *Reconciler) again(all map[object.Key]*object.Verdict) time.Duration {
	for _, v := range all {
		for _, c := range v.Conditions {
			if c.Type == object.Published && (c.Reason == "RolloutUnderWay" || v.More["plan"] != nil && c.Status == metav1.ConditionTrue) {
				return min(step, r.Again)
			}
		}
	}
	return r.Again
}

func documents(all []*unstructured.Unstructured) []cluster.Object {
	out := make([]cluster.Object, len(all))
	for i, u := range all {
		out[i] = cluster.ObjectOf(u.Object)
	}
	return out
}

// taken returns the namespace that had a fleet of this name before, "" where none has.
func (r *Reconciler) taken(ctx context.Context, o objects) (string, error) {
	if o.site == nil {
		return "", nil
	}
	others, err := r.list(ctx, cluster.Site)
	if err != nil {
		return "", err
	}
	first := o.site
	for i := range others {
		one := &others[i]
		if one.GetName() == first.GetName() && one.GetDeletionTimestamp() == nil && before(one, first) {
			first = one
		}
	}
	if first.GetNamespace() == o.namespace {
		return "", nil
	}
	return first.GetNamespace(), nil
}

// before reports whether an object was made before another; of two in one second, by name.
func before(a, b *unstructured.Unstructured) bool {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !x.Equal(&y) {
		return x.Before(&y)
	}
	return a.GetNamespace() < b.GetNamespace()
}

// hostFiles are those of this machine: what stands beside objects. An object itself names
// none, see [cluster.Refused].
type hostFiles struct{}

func (hostFiles) Open(name string) (fs.File, error) { return os.Open(name) }

// Published reads what is published of a namespace's fleet, by the keys beside caisson-kube. The
// registry is that of the Site, or of Registries where the site is not objects. Of the objects it
// reads nothing else: one that is not valid keeps nobody from asking.
func (r *Reconciler) Published(ctx context.Context, namespace string) (*published.Fleet, error) {
	sites, err := r.list(ctx, cluster.Site, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	head := map[string]any{"apiVersion": cluster.Group + "/" + cluster.Version, "kind": cluster.Site,
		"metadata": map[string]any{"name": namespace}, "registry": r.Registries[namespace]}
	if len(sites) == 1 {
		head["metadata"] = map[string]any{"name": sites[0].GetName()}
		if head["registry"] == "" {
			head["registry"], _, _ = unstructured.NestedString(sites[0].Object, "registry") // the definition makes it a text
		}
	}
	if head["registry"] == "" {
		return nil, fmt.Errorf("which nodes are published is not known: the namespace %s has not one Site with a registry, "+
			"and no --registry names it", namespace)
	}
	dir := filepath.Join(r.Dir, namespace)
	s, problems := cluster.Reader{Files: hostFiles{},
		Keys: cluster.KeysBeside(hostFiles{}, dir)}.Parse(cluster.Day(r.Now()), dir, nil, []cluster.Object{cluster.ObjectOf(head)})
	if s == nil {
		return nil, errors.New(object.Text(problems[0]))
	}
	p, err := policy.Site(s, "")
	if err != nil {
		return nil, fmt.Errorf("whose keys count is said beside caisson-kube: %w", err)
	}
	if len(sites) != 1 {
		p.Fleet = "" // the index says it
	}
	registry, err := r.Open(s.Registry())
	if err != nil {
		return nil, err
	}
	seen, err := published.OpenMemory(filepath.Join(r.State, namespace+".memory"))
	if err != nil {
		return nil, err
	}
	return (&published.Reader{Registry: registry, Now: r.time(), Memory: seen, Say: func(string, ...any) {}}).Find(ctx, p)
}

// Groups returns the groups of slots that published nodes have, each by its verified overlay, and
// nothing of a node that is not published. With an error it returns those that could be read.
func (r *Reconciler) Groups(ctx context.Context, namespace string, nodes []string) (map[string][]string, error) {
	f, err := r.Published(ctx, namespace)
	if err != nil {
		return nil, err
	}
	out, failed := map[string][]string{}, []error(nil)
	for _, name := range nodes {
		if _, ok, err := f.Row(ctx, name); err != nil || !ok {
			failed = append(failed, err)
			continue
		}
		o, err := f.Overlay(ctx, name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		out[name] = nil
		if o.Maintenance != nil {
			out[name] = slices.Collect(maps.Keys(o.Maintenance.Slots))
		}
	}
	return out, errors.Join(failed...)
}

// settle is how long changes of a namespace are gathered before it is looked at: ten
// thousand of them in a minute are thirty looks.
const settle = 2 * time.Second

// atOnce is how many namespaces are looked at at a time: a registry that does not answer is
// one fleet's.
const atOnce = 4

// Watch has the reconciler look at each namespace in which something of ours changes. What
// it writes itself, a status, is not a change.
func (r *Reconciler) Watch(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("sites").WithOptions(controller.Options{MaxConcurrentReconciles: atOnce})
	for _, k := range cluster.Kinds() {
		if !k.Doc && k.Kind != cluster.PublishApproval {
			continue
		}
		b = b.Watches(object.Of(k.Kind, "", ""), each(func(_ context.Context, o client.Object, q queue) { lookAt(o, q) }),
			builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	c, err := b.Build(r)
	if err != nil {
		return err
	}
	r.watchNodes = sync.OnceValue(func() error { return r.nodesOf(mgr, c) })
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// lookAt has the namespace of an object looked at.
func lookAt(o client.Object, q queue) {
	q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}, settle)
}

// each handles all events about objects alike.
func each[O client.Object](do func(context.Context, O, queue)) handler.TypedFuncs[O, reconcile.Request] {
	return handler.TypedFuncs[O, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[O], q queue) { do(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[O], q queue) { do(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[O], q queue) { do(ctx, e.Object, q) },
	}
}

// members returns the Nodes of the cluster, as memory has them. They are watched from the
// first time on: where no Site names them, nobody asks an API server for Nodes.
func (r *Reconciler) members(ctx context.Context) ([]cluster.Member, error) {
	if r.watchNodes != nil {
		if err := r.watchNodes(); err != nil {
			return nil, err
		}
	}
	var l corev1.NodeList
	if err := r.Client.List(ctx, &l, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	out := make([]cluster.Member, len(l.Items))
	for i, n := range l.Items {
		out[i] = cluster.Member{Name: n.Name, Labels: n.Labels, UUID: n.Status.NodeInfo.SystemUUID}
	}
	return out, nil
}

// nodesOf has namespaces looked at again whose Sites name the cluster's Nodes, when these
// change in what a site may read of them: a heartbeat is not a change.
func (r *Reconciler) nodesOf(mgr ctrl.Manager, c controller.Controller) error {
	changed := predicate.TypedFuncs[*corev1.Node]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
		return !maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) ||
			e.ObjectOld.Status.NodeInfo.SystemUUID != e.ObjectNew.Status.NodeInfo.SystemUUID
	}}
	return c.Watch(source.Kind(mgr.GetCache(), &corev1.Node{}, each(r.lookAgain), changed))
}

// lookAgain looks again at the namespaces whose Sites name Nodes.
func (r *Reconciler) lookAgain(ctx context.Context, _ *corev1.Node, q queue) {
	sites, err := r.list(ctx, cluster.Site)
	if err != nil {
		return // memory always answers; what changed is seen at the next look
	}
	for _, one := range sites {
		list, _ := one.Object["inventory"].([]any) // nil where there is none
		if len(list) > 0 {
			lookAt(&one, q)
		}
	}
}
