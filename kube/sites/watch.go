// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(GVK(k.Kind))
		b = b.Watches(u, namespaces{}, builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	c, err := b.Build(r)
	if err != nil {
		return err
	}
	r.watchNodes = sync.OnceValue(func() error { return r.nodesOf(mgr, c) })
	return nil
}

// namespaces turns an event about an object into a look at its namespace.
type namespaces struct{}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (namespaces) add(o client.Object, q queue) {
	q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}, settle)
}

func (n namespaces) Create(_ context.Context, e event.CreateEvent, q queue)   { n.add(e.Object, q) }
func (n namespaces) Update(_ context.Context, e event.UpdateEvent, q queue)   { n.add(e.ObjectNew, q) }
func (n namespaces) Delete(_ context.Context, e event.DeleteEvent, q queue)   { n.add(e.Object, q) }
func (n namespaces) Generic(_ context.Context, e event.GenericEvent, q queue) { n.add(e.Object, q) }

var _ handler.EventHandler = namespaces{}
