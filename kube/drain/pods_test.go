// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktest "k8s.io/client-go/testing"

	"github.com/caisson-os/caisson/kube/service"
)

// ofSet is a pod that something makes again under its name.
func ofSet(node, uid string) *corev1.Pod {
	yes := true
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", Namespace: "apps", UID: types.UID(uid),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "s", Controller: &yes}}},
		Spec: corev1.PodSpec{NodeName: node}}
}

// drainOf drains node-a, of a server that knows evictions by evict.
func drainOf(t *testing.T, n *corev1.Node, p *corev1.Pod, evict func(c *fake.Clientset, e *policyv1.Eviction) error) error {
	c := fake.NewClientset(n, p)
	c.Resources = []*metav1.APIResourceList{
		{GroupVersion: "policy/v1", APIResources: []metav1.APIResource{{Name: "poddisruptionbudgets", Kind: "PodDisruptionBudget"}}},
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods/eviction", Kind: "Eviction", Group: "policy", Version: "v1"}}},
	}
	var mu sync.Mutex
	c.PrependReactor("create", "pods", func(a ktest.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		mu.Lock()
		defer mu.Unlock()
		return true, nil, evict(c, a.(ktest.CreateAction).GetObject().(*policyv1.Eviction))
	})
	d := &Drainer{Client: c, Events: &told{}, Slots: &slots{}, Namespace: "metal-a", Alone: true, Policy: Policy{Timeout: 5 * time.Minute, Grace: -1, Force: true}}
	return d.drain(t.Context(), n, service.Slot{Group: "g", Node: n.Name})
}

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// TestSameNameElsewhere: a pod whose budget refuses is deleted by somebody else, and made again under
// its name on another Node. That one stays.
func TestSameNameElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		err := drainOf(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, ofSet("node-a", "uid-1"), func(c *fake.Clientset, e *policyv1.Eviction) error {
			if asked++; asked == 1 {
				if err := c.Tracker().Delete(pods, "apps", "db-0"); err != nil {
					t.Error(err)
				}
				if err := c.Tracker().Add(ofSet("node-b", "uid-2")); err != nil {
					t.Error(err)
				}
				return apierrors.NewTooManyRequests("budget", 1)
			}
			if pre := e.DeleteOptions.Preconditions; pre != nil && pre.UID != nil && *pre.UID != "uid-2" {
				return apierrors.NewConflict(corev1.Resource("pods"), e.Name, nil)
			}
			t.Error("the drain of node-a evicted a pod of node-b")
			return nil
		})
		if err != nil || asked != 2 {
			t.Errorf("%v after %d questions", err, asked)
		}
	})
}

// TestPodOfADeadNode: one that ends for ever, as no kubelet says that it has ended, holds the drain of
// a Node that nobody hears of no longer than a minute past its time, and of others to the deadline.
func TestPodOfADeadNode(t *testing.T) {
	for status, drained := range map[corev1.ConditionStatus]bool{corev1.ConditionUnknown: true, corev1.ConditionTrue: false} {
		synctest.Test(t, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"},
				Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
			began := time.Now()
			err := drainOf(t, n, ofSet("node-a", "uid-1"), func(c *fake.Clientset, _ *policyv1.Eviction) error {
				ends := ofSet("node-a", "uid-1")
				ends.DeletionTimestamp, ends.Finalizers = &metav1.Time{Time: time.Now().Add(30 * time.Second)}, []string{never}
				return c.Tracker().Update(pods, ends, "apps")
			})
			if took := time.Since(began); (err == nil) != drained || drained && took > 100*time.Second {
				t.Errorf("Ready %s: %v after %s", status, err, took)
			}
		})
	}
}
