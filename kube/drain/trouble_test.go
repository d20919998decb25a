// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const never = "example.org/never"

// unfinish takes the finalizers off a pod.
func (b *bench) unfinish(pod string) {
	b.Helper()
	_, err := b.c.CoreV1().Pods("default").Patch(b.Context(), pod, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	b.must(err)
}

// TestFinalizer: a pod whose finalizer nobody takes off is evicted and stays; the drain ends
// at its deadline, says which pod that was, and gives the Node back.
func TestFinalizer(t *testing.T) {
	b := newBench(t)
	of := b.replicas(2)
	b.node("n1", false)
	b.pod("goes", "n1", of)
	b.pod("stays", "n1", func(p *corev1.Pod) {
		of(p)
		p.Finalizers = []string{never}
	})
	b.run(b.drainer(5 * time.Second))
	b.slots.ask("n1")
	b.until("it is given up", func() bool { return b.events.has("n1 Released it could not be drained") })
	for _, want := range []string{"n1 DrainFailed not drained within 5s: ", `pod "stays" in namespace "default"`, "pod default/stays waits for its finalizers: example.org/never"} {
		if !b.events.has(want) {
			t.Errorf("no %q; events: %q", want, b.events.lines)
		}
	}
	if b.events.has("goes") {
		t.Errorf("events: %q", b.events.lines)
	}
	if n := b.get("n1"); n.Spec.Unschedulable || n.Annotations[Annotation] != "" || b.slots.drained("n1") {
		t.Errorf("%v %v", n.Spec, n.Annotations)
	}
	b.counts(0, 1)
	b.unfinish("stays")
}

// TestTwoAtOnce: of two nodes that ask at once for the only slot one is drained, and the other
// when that one is back: at no time are two cordoned.
func TestTwoAtOnce(t *testing.T) {
	b := newBench(t)
	names := []string{"n1", "n2"}
	of := b.replicas(2)
	for _, name := range names {
		b.node(name, false)
		b.pod("web-"+name, name, of)
	}
	changes, err := b.c.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	b.must(err)
	cordoned := make(chan [][]string)
	go func() { // every state of the Nodes, as the API server tells them
		now, states := map[string]bool{}, [][]string{}
		for c := range changes.ResultChan() {
			if n, ok := c.Object.(*corev1.Node); ok {
				now[n.Name] = n.Spec.Unschedulable
			}
			var some []string
			for _, name := range names {
				if now[name] {
					some = append(some, name)
				}
			}
			states = append(states, some)
		}
		cordoned <- states
	}()
	b.run(b.drainer(time.Minute))
	var agents sync.WaitGroup
	for _, name := range names {
		agents.Go(func() { // a node's agent: it asks until it may, acts, and gives its slot back
			for end := time.Now().Add(2 * time.Minute); !b.slots.take(name); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Errorf("%s had no slot", name)
					return
				}
			}
			for end := time.Now().Add(2 * time.Minute); !b.slots.drained(name); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Errorf("%s was not drained", name)
					return
				}
			}
			b.slots.free(name)
		})
	}
	agents.Wait()
	b.until("both are back", func() bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			n := b.get(name)
			return n.Spec.Unschedulable || n.Annotations[Annotation] != ""
		})
	})
	changes.Stop()
	seen := map[string]bool{}
	for _, some := range <-cordoned {
		seen[strings.Join(some, " ")] = true
	}
	if !seen["n1"] || !seen["n2"] || seen["n1 n2"] {
		t.Errorf("cordoned at a time: %v", seen)
	}
	if told := slices.Sorted(slices.Values(b.slots.said)); !slices.Equal(told, []string{"n1: 1 pods were evicted", "n2: 1 pods were evicted"}) {
		t.Errorf("the service was told %q", told)
	}
	b.counts(2, 0)
}

// TestKilledInTheMiddle: an instance that is killed in a drain leaves the Node as it is; the
// next one goes on from the mark, begins nothing twice, and uncordons at the end.
func TestKilledInTheMiddle(t *testing.T) {
	b := newBench(t)
	of := b.replicas(2)
	b.node("n1", false)
	b.pod("goes", "n1", of)
	b.pod("lingers", "n1", func(p *corev1.Pod) {
		of(p)
		p.Finalizers = []string{never}
	})
	kill := b.run(b.drainer(time.Hour))
	b.slots.ask("n1")
	b.until("one pod is gone, and the other is going", func() bool {
		p, err := b.c.CoreV1().Pods("default").Get(t.Context(), "lingers", metav1.GetOptions{})
		b.must(err)
		return b.pods("n1") == 1 && p.DeletionTimestamp != nil
	})
	kill()
	n := b.get("n1")
	b.markedBy(b.drainer(time.Hour), "n1")
	if !n.Spec.Unschedulable || b.slots.drained("n1") {
		t.Errorf("after the kill: unschedulable %v, %+v", n.Spec.Unschedulable, n.Annotations)
	}

	b.run(b.drainer(time.Hour))
	b.until("the next one goes on", func() bool { return slices.Equal(b.asked.evictions(), []string{"goes", "lingers", "lingers"}) })
	b.unfinish("lingers")
	b.until("n1 is drained", func() bool { return b.slots.drained("n1") })
	b.slots.free("n1")
	b.until("n1 is uncordoned", func() bool { n := b.get("n1"); return !n.Spec.Unschedulable && n.Annotations[Annotation] == "" })
	b.until("it is told", func() bool { return b.events.has("n1 Released") })
	for _, reason := range []string{" Draining ", " Drained ", " Released "} {
		if b.events.count(reason) != 1 {
			t.Errorf("events: %q", b.events.lines)
		}
	}
	if len(b.slots.said) != 1 || b.events.has("DrainFailed") {
		t.Errorf("the service was told %q; events: %q", b.slots.said, b.events.lines)
	}
	b.counts(1, 0)
}

// TestNeverBack: a Node that does not come back keeps its slot, and its group when that was
// released; an Event says so on it and on the next one, once, and not before it is late.
func TestNeverBack(t *testing.T) {
	b := newBench(t)
	b.node("n1", false)
	b.node("n2", false)
	kill := b.run(b.drainer(time.Minute))
	b.slots.ask("n1")
	b.until("n1 is drained", func() bool { return b.slots.drained("n1") })
	kill()
	d := b.drainer(time.Minute)
	told := func(when string, want ...string) {
		t.Helper()
		for range 3 {
			b.must(b.look(d))
		}
		b.events.mu.Lock()
		defer b.events.mu.Unlock()
		var got []string
		for _, line := range b.events.lines {
			if strings.Contains(line, " KeepsOthersWaiting ") || strings.Contains(line, " WaitsForAnother ") {
				got = append(got, line)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: told %q, want %q", when, got, want)
		}
		b.events.lines = nil
	}
	b.wellSince("n1", false, 14*time.Minute)
	told("it starts over")
	b.wellSince("n1", false, 16*time.Minute)
	told("it is late", "n1 KeepsOthersWaiting it has a slot of default and has not been ready for 15m0s: where it does not come back, 'caisson fleet slots release default n1 --reason TEXT' and 'kubectl delete node n1' let others have their turn")

	b.slots.free("n1") // by an operator
	b.slots.ask("n2")
	told("its slot was released", "n1 KeepsOthersWaiting it gave a slot of default back and has not been ready for 15m0s: where it does not come back, 'kubectl delete node n1' lets others have their turn",
		"n2 WaitsForAnother it is not drained for its slot of default while Node n1 is not ready, which had one")
	if b.get("n2").Spec.Unschedulable {
		t.Error("n2 was begun")
	}

	b.must(b.c.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
	told("it is given up")
	b.until("n2 is drained", func() bool { return b.slots.drained("n2") })
	d.work.wg.Wait()

	// Another time is told again.
	b.wellSince("n2", false, time.Hour)
	told("the next one is late", "n2 KeepsOthersWaiting it has a slot of default and has not been ready for 15m0s: where it does not come back, 'caisson fleet slots release default n2 --reason TEXT' and 'kubectl delete node n2' let others have their turn")
	b.well("n2", true)
	told("it is back")
	b.wellSince("n2", false, time.Hour)
	told("it is late again", "n2 KeepsOthersWaiting it has a slot of default and has not been ready for 15m0s: where it does not come back, 'caisson fleet slots release default n2 --reason TEXT' and 'kubectl delete node n2' let others have their turn")
}

// TestManyBack: which of several Nodes the next one waits for is told once, and not another
// one at each look.
func TestManyBack(t *testing.T) {
	b := newBench(t)
	d := b.drainer(time.Minute)
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		b.node(name, false)
		b.slots.ask(name)
	}
	b.must(b.look(d))
	d.work.wg.Wait()
	for _, name := range []string{"n1", "n2", "n3"} {
		b.wellSince(name, false, time.Hour)
		b.slots.free(name)
	}
	b.slots.free("n4")
	b.must(b.look(d))
	b.slots.ask("n4")
	b.known()
	for range 50 { // in whatever order it meets them
		b.must(d.Look(t.Context()))
	}
	if b.events.count("WaitsForAnother") != 1 || !b.events.has("n4 WaitsForAnother it is not drained for its slot of default while Node n1 ") || b.events.count("KeepsOthersWaiting") != 3 {
		t.Errorf("events: %q", b.events.lines)
	}
}

// TestOptions: each option of a drain does what it says, and without it the pod stays and the
// Event names the option.
func TestOptions(t *testing.T) {
	b := newBench(t)
	of := b.replicas(5)
	emptyDir := func(p *corev1.Pod) {
		of(p)
		p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}
	lingers := func(p *corev1.Pod) {
		of(p)
		seconds := int64(77)
		p.Finalizers, p.Spec.TerminationGracePeriodSeconds = []string{never}, &seconds
	}
	for _, test := range []struct {
		name   string
		pod    func(*corev1.Pod)
		policy Policy
		says   string // in the Event; "" where the pod is evicted
		grace  int64  // that the API server gave the pod; 0 where that is not looked at
	}{
		{name: "emptydir-stays", pod: emptyDir, policy: Policy{Grace: -1, Force: true}, says: "Pods with local storage (use --drain-delete-emptydir to override): default/emptydir-stays"},
		{name: "emptydir-goes", pod: emptyDir, policy: Policy{Grace: -1, DeleteEmptyDir: true}},
		{name: "bare-stays", policy: Policy{Grace: -1, DeleteEmptyDir: true}, says: "Pods that declare no controller (use --drain-force to override): default/bare-stays"},
		{name: "bare-goes", policy: Policy{Grace: -1, Force: true}},
		{name: "grace-of-pod", pod: lingers, policy: Policy{Grace: -1}, grace: 77},
		{name: "grace-of-option", pod: lingers, policy: Policy{Grace: 7}, grace: 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.node(test.name, false)
			b.pod(test.name, test.name, test.pod)
			d := b.drainer(time.Minute)
			test.policy.Timeout = d.Policy.Timeout
			d.Policy = test.policy
			kill := b.run(d)
			defer kill()
			b.slots.ask(test.name)
			defer b.slots.free(test.name)
			if test.says != "" {
				b.until("it is refused", func() bool { return b.events.has(test.name + " Released") })
				if !b.events.has(test.name+" DrainFailed") || !b.events.has(test.says) || b.pods(test.name) != 1 || b.get(test.name).Spec.Unschedulable {
					t.Errorf("%d pods; events: %q", b.pods(test.name), b.events.lines)
				}
				return
			}
			if test.grace > 0 {
				b.until("it is going", func() bool {
					p, err := b.c.CoreV1().Pods("default").Get(t.Context(), test.name, metav1.GetOptions{})
					b.must(err)
					if p.DeletionTimestamp != nil && *p.DeletionGracePeriodSeconds != test.grace {
						t.Fatalf("it has %d seconds, want %d", *p.DeletionGracePeriodSeconds, test.grace)
					}
					return p.DeletionTimestamp != nil
				})
				b.unfinish(test.name)
			}
			b.until("it is drained", func() bool { return b.slots.drained(test.name) })
			if b.pods(test.name) != 0 || b.events.has(test.name+" DrainFailed") {
				t.Errorf("%d pods; events: %q", b.pods(test.name), b.events.lines)
			}
		})
	}
}
