// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/policy/v1"
)

// byUID evicts pods that were found on a Node, and none that was made again under the name of
// one, as on another Node: the library asks by the name alone.
type byUID struct {
	kubernetes.Interface
	uids map[types.NamespacedName]types.UID
}

func newByUID(c kubernetes.Interface, pods []corev1.Pod) byUID {
	b := byUID{c, map[types.NamespacedName]types.UID{}}
	for _, p := range pods {
		b.uids[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p.UID
	}
	return b
}

// PolicyV1 implements [kubernetes.Interface].
func (b byUID) PolicyV1() typed.PolicyV1Interface { return policyByUID{b.Interface.PolicyV1(), b} }

type policyByUID struct {
	typed.PolicyV1Interface
	of byUID
}

// Evictions implements [typed.EvictionsGetter].
func (p policyByUID) Evictions(namespace string) typed.EvictionInterface {
	return evictByUID{p.PolicyV1Interface.Evictions(namespace), p.of}
}

type evictByUID struct {
	typed.EvictionInterface
	of byUID
}

// Evict implements [typed.EvictionExpansion]. A pod that is another one by now is gone.
func (e evictByUID) Evict(ctx context.Context, eviction *policyv1.Eviction) error {
	uid := e.of.uids[types.NamespacedName{Namespace: eviction.Namespace, Name: eviction.Name}]
	if eviction.DeleteOptions == nil {
		eviction.DeleteOptions = &metav1.DeleteOptions{}
	}
	eviction.DeleteOptions.Preconditions = &metav1.Preconditions{UID: &uid}
	err := e.EvictionInterface.Evict(ctx, eviction)
	if !apierrors.IsConflict(err) {
		return err
	}
	now, failed := e.of.CoreV1().Pods(eviction.Namespace).Get(ctx, eviction.Name, metav1.GetOptions{})
	if failed == nil && now.UID == uid {
		return apierrors.NewTooManyRequests(err.Error(), 0) // somebody wrote it meanwhile: asked again
	}
	return apierrors.NewNotFound(corev1.Resource("pods"), eviction.Name)
}

// deadGrace is how long past its time a pod may be there whose Node nobody hears of, in
// seconds: no kubelet says that it has ended.
const deadGrace = 60

// unreachable reports whether a Node's kubelet is silent.
func unreachable(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown
		}
	}
	return false
}

// flags are those of caisson-kube for the ones of kubectl that its library names in errors.
var flags = strings.NewReplacer("--delete-emptydir-data", "--drain-delete-emptydir", "--force", "--drain-force")

// refused says why no pod of a Node was touched, nil where none refused.
func refused(errs []error) error {
	for i, err := range errs {
		if text := flags.Replace(err.Error()); text != err.Error() {
			errs[i] = errors.New(text)
		}
	}
	return errors.Join(errs...)
}

// explain says why pods are not gone that were evicted since a time: the library names the
// pods, and neither the deadline nor what keeps a pod that is to end.
func (d *Drainer) explain(ctx context.Context, began time.Time, pods []corev1.Pod, err error) error {
	if time.Since(began) < d.Policy.Timeout {
		return err
	}
	err = fmt.Errorf("not drained within %s: %w", d.Policy.Timeout, err)
	for _, p := range pods {
		now, failed := d.Client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(failed) || failed == nil && now.UID != p.UID:
		case failed != nil:
			return errors.Join(err, fmt.Errorf("read pod %s/%s: %w", p.Namespace, p.Name, failed))
		case now.DeletionTimestamp != nil && len(now.Finalizers) > 0:
			err = errors.Join(err, fmt.Errorf("pod %s/%s waits for its finalizers: %s", p.Namespace, p.Name, strings.Join(now.Finalizers, ", ")))
		}
	}
	return err
}
