// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/caisson-os/caisson/kube/service"
)

// cordoned names the Nodes that take no pods.
func (b *bench) cordoned() (names []string) {
	b.Helper()
	l, err := b.c.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{})
	b.must(err)
	for _, n := range l.Items {
		if n.Spec.Unschedulable {
			names = append(names, n.Name)
		}
	}
	return names
}

// TestStolenService: a service that lists every Node as waiting, in groups that it makes up, has
// one Node drained, which is published in its group: no other one is touched, and the control
// plane never. When that one is back, the next has its turn.
func TestStolenService(t *testing.T) {
	b := newBench(t)
	for i := range 20 {
		b.node(fmt.Sprintf("n%02d", i), false)
	}
	n := b.get("n02")
	n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	_, err := b.c.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	b.must(err)
	d := b.drainer(time.Minute)
	d.Most = 1
	asked := map[string]int{}
	d.Index = func(_ context.Context, nodes []string) (map[string][]string, error) {
		if len(nodes) > MaxAsked {
			t.Errorf("%d overlays are read at a look", len(nodes))
		}
		out := map[string][]string{}
		for _, name := range nodes {
			asked[name]++
			if name == "n02" || name == "n05" || name == "n06" {
				out[name] = []string{"default"}
			}
		}
		return out, nil
	}
	for i := range 20 {
		group := "default"
		if i == 5 {
			group = "made-up"
		}
		b.slots.put(service.Slot{Group: group, Node: fmt.Sprintf("n%02d", i), Draining: true})
	}
	for i := range 5000 {
		b.slots.ask(fmt.Sprintf("elsewhere%d", i))
	}
	b.slots.ask("n06")
	for range 100 {
		_ = b.look(d) // it says what it refuses
	}
	d.work.wg.Wait()
	if got := b.cordoned(); len(got) != 1 || got[0] != "n06" {
		t.Fatalf("cordoned: %q", got)
	}
	for name, n := range asked {
		if n > 1 && name != "n06" {
			t.Errorf("%s was looked up %d times within a minute", name, n)
		}
	}
	if b.slots.drained("elsewhere1") {
		t.Error("the service was told of a machine that is not published")
	}
	b.slots.put(service.Slot{Group: "default", Node: "n05", Draining: true})
	d.work.waiting = map[string]time.Time{}
	_ = b.look(d)
	d.work.wg.Wait()
	if got := b.cordoned(); len(got) != 1 {
		t.Errorf("cordoned while one is not back: %q", got)
	}
	b.slots.free("n06")
	for range 200 {
		_ = b.look(d)
	}
	d.work.wg.Wait()
	if got := b.cordoned(); len(got) != 1 || got[0] != "n05" {
		t.Errorf("cordoned when it was back: %q", got)
	}
}

// TestIndexAway: while nobody knows what is published nothing is drained, and it is tried again
// at once.
func TestIndexAway(t *testing.T) {
	b := newBench(t)
	b.node("n1", false)
	d := b.drainer(time.Minute)
	known := d.Index
	d.Index = func(context.Context, []string) (map[string][]string, error) {
		return nil, fmt.Errorf("the registry is away")
	}
	b.slots.ask("n1")
	if err := b.look(d); err == nil || !strings.Contains(err.Error(), "read what is published: the registry is away") || len(b.cordoned()) > 0 {
		t.Errorf("%v; cordoned: %q", err, b.cordoned())
	}
	d.Index = known
	b.must(b.look(d))
	d.work.wg.Wait()
	if !b.slots.drained("n1") {
		t.Error("it is not drained")
	}
}

// TestForgedMark: a mark that a kubelet writes on its own Node, which is not ready, keeps nobody
// waiting and is not counted, for the Node never had that slot.
func TestForgedMark(t *testing.T) {
	b := newBench(t)
	b.node("n1", false)
	b.node("n2", false)
	d := b.drainer(time.Minute)
	d.Most = 1
	b.must(b.look(d)) // a mark of before would be of another instance
	n := b.get("n1")
	n.Annotations = map[string]string{Annotation: mark{Namespace: "metal-a", Group: "default", Cordoned: true}.text()}
	_, err := b.c.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	b.must(err)
	b.wellSince("n1", false, time.Hour)
	b.slots.ask("n2")
	b.must(b.look(d))
	d.work.wg.Wait()
	if !b.slots.drained("n2") || b.events.has("KeepsOthersWaiting") {
		t.Errorf("n2 is not drained; events: %q", b.events.lines)
	}
}

// TestMarkOfBefore: a mark that stands when caisson-kube starts keeps others waiting where one
// before has written it on this Node within a day, and no other.
func TestMarkOfBefore(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	for _, c := range []struct {
		what  string
		waits bool
		write func(d *Drainer, n *corev1.Node, m *mark)
	}{
		{"its own", true, func(*Drainer, *corev1.Node, *mark) {}},
		{"without a MAC, as of an older release", false, func(_ *Drainer, _ *corev1.Node, m *mark) { m.MAC = "" }},
		{"of another Node", false, func(d *Drainer, n *corev1.Node, m *mark) {
			*m, _ = d.seal(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}}, *m)
		}},
		{"of another fleet", false, func(_ *Drainer, _ *corev1.Node, m *mark) { m.Namespace = "metal-b" }},
		{"of a machine of that name before", false, func(d *Drainer, n *corev1.Node, m *mark) {
			*m, _ = d.seal(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "before"}}, *m)
		}},
		{"written again after a day", false, func(d *Drainer, n *corev1.Node, m *mark) { m.Since = now.Add(-Believed); *m, _ = d.seal(n, *m) }},
		{"with a later date", false, func(_ *Drainer, _ *corev1.Node, m *mark) { m.Since = m.Since.Add(time.Second) }},
	} {
		d := &Drainer{Slots: &slots{}}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "its"}}
		m, err := d.seal(n, mark{Namespace: "metal-a", Group: "default", Cordoned: true, Since: now})
		if err != nil {
			t.Fatal(err)
		}
		c.write(d, n, &m)
		n.Annotations = map[string]string{Annotation: m.text()}
		if err := d.remember(map[string]*corev1.Node{"n1": n}, nil, nil); err != nil || d.work.had["n1 default"] != c.waits {
			t.Errorf("a mark %s: others wait: %v, %v", c.what, d.work.had, err)
		}
	}
}

// TestRemembersNoMoreThanThereIs: slots that a service makes up are forgotten with them.
func TestRemembersNoMoreThanThereIs(t *testing.T) {
	d := &Drainer{}
	nodes := map[string]*corev1.Node{"n1": {ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}
	for i := range 100 {
		group := fmt.Sprint(i)
		_ = d.remember(nodes, map[string]service.Slot{"n1 " + group: {Group: group, Node: "n1"}}, map[string]map[string]bool{})
	}
	if len(d.work.had) != 1 {
		t.Errorf("%d slots are remembered", len(d.work.had))
	}
}
