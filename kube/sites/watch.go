// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

	"github.com/caisson-os/caisson/spec/site/cluster"
)

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
		b = b.Watches(Object(k.Kind, "", ""), each(func(_ context.Context, o client.Object, q queue) { lookAt(o, q) }),
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
