// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/kube/service"
	"github.com/caisson-os/caisson/kube/test/kubetest"
)

// slots are a service's.
type slots struct {
	mu   sync.Mutex
	held map[string]service.Slot // by node
	said []string
}

// take gives a node the only slot, unless another has it.
func (s *slots) take(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) > 0 {
		return false
	}
	s.held = map[string]service.Slot{node: {Group: "default", Node: node, Draining: true}}
	return true
}

func (s *slots) ask(node string) { s.put(service.Slot{Group: "default", Node: node, Draining: true}) }

func (s *slots) put(one service.Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[string]service.Slot{}
	}
	s.held[one.Node] = one
}

func (s *slots) free(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, node)
}

func (s *slots) Slots(context.Context) (out []service.Slot, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.held {
		out = append(out, one)
	}
	return out, nil
}

func (s *slots) Drained(_ context.Context, one service.Slot, what string) error {
	s.mu.Lock()
	s.said = append(s.said, one.Node+": "+what)
	s.mu.Unlock()
	one.Draining = false
	s.put(one)
	return nil
}

// MAC is that of a service whose token is "secret".
func (*slots) MAC(text string) (string, error) {
	return fmt.Sprintf("%x", sha256.Sum256([]byte("secret"+text))), nil
}

// markedBy fails unless a Node has the mark of a drainer that cordoned it.
func (b *bench) markedBy(d *Drainer, node string) {
	b.Helper()
	n := b.get(node)
	m, _ := markOf(n)
	if ours, err := d.proven(n, m); !ours || err != nil || m.Namespace != "metal-a" || m.Group != "default" || !m.Cordoned {
		b.Errorf("the mark of %s is %+v, %v", node, m, err)
	}
}

func (*slots) Changes(context.Context, time.Duration) <-chan struct{} { return nil }

func (s *slots) drained(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, has := s.held[node]
	return has && !one.Draining
}

type told struct {
	mu    sync.Mutex
	lines []string
}

func (t *told) Eventf(o, _ runtime.Object, kind, reason, _, note string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, o.(*corev1.Node).Name+" "+reason+" "+fmt.Sprintf(note, args...))
}

func (t *told) has(words string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Contains(strings.Join(t.lines, "\n"), words)
}

func (t *told) count(word string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Count(strings.Join(t.lines, "\n"), word)
}

// bench is a cluster with Nodes whose kubelets remove what is deleted.
type bench struct {
	*testing.T
	c      kubernetes.Interface
	memory client.Reader // as that of caisson-kube
	asked  *asked
	slots  *slots
	events *told
	ok     atomic.Int64 // drains that were counted,
	failed atomic.Int64 // and those that could not be
}

func newBench(t *testing.T) *bench {
	c := kubetest.Start(t)
	c.Controllers(t, "disruption-controller")
	asked := &asked{}
	config := rest.CopyConfig(c.Env.Config)
	config.Wrap(asked.wrap)
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := cache.New(c.Env.Config, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, c: set, memory: memory, asked: asked, slots: &slots{}, events: &told{}}
	done := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			b.kubelets(ctx)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- memory.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return b
}

// asked notes which lists of Nodes an API server was asked for, and which Nodes, and which
// evictions.
type asked struct {
	mu      sync.Mutex
	paths   []string
	evicted []string // pods
}

func (a *asked) evictions() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.evicted))
}

func (a *asked) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodGet && strings.HasPrefix(req.URL.Path, "/api/v1/nodes") {
			a.mu.Lock()
			a.paths = append(a.paths, req.URL.Path)
			a.mu.Unlock()
		}
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/eviction") {
			a.mu.Lock()
			a.evicted = append(a.evicted, path.Base(path.Dir(req.URL.Path)))
			a.mu.Unlock()
		}
		return next.RoundTrip(req)
	})
}

func (a *asked) reset() (paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	paths, a.paths = a.paths, nil
	return paths
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// known waits until memory has the Nodes as they are.
func (b *bench) known() {
	b.Helper()
	b.until("memory has the Nodes", func() bool {
		l, err := b.c.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{})
		b.must(err)
		var known corev1.NodeList
		b.must(b.memory.List(b.Context(), &known))
		as := func(all []corev1.Node) map[string]string {
			out := map[string]string{}
			for _, n := range all {
				out[n.Name] = n.ResourceVersion
			}
			return out
		}
		return maps.Equal(as(l.Items), as(known.Items))
	})
	b.asked.reset()
}

// look has a drainer look once at Nodes as they are.
func (b *bench) look(d *Drainer) error {
	b.Helper()
	b.known()
	return d.Look(b.Context())
}

// kubelets ends the pods that are to end.
func (b *bench) kubelets(ctx context.Context) {
	pods, err := b.c.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	now := int64(0)
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
			_ = b.c.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		}
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) until(what string, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%s: not within two minutes; %q", what, b.events.lines)
		}
	}
}

func (b *bench) node(name string, unschedulable bool) {
	b.Helper()
	n, err := b.c.CoreV1().Nodes().Create(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: unschedulable}}, metav1.CreateOptions{})
	b.must(err)
	b.well(n.Name, true)
}

// well sets whether a Node is ready.
func (b *bench) well(name string, ready bool) { b.Helper(); b.wellSince(name, ready, 0) }

// wellSince sets whether a Node is ready, and for how long that is so.
func (b *bench) wellSince(name string, ready bool, since time.Duration) {
	b.Helper()
	n, err := b.c.CoreV1().Nodes().Get(b.Context(), name, metav1.GetOptions{})
	b.must(err)
	status := corev1.ConditionTrue
	if !ready {
		status = corev1.ConditionUnknown
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Test", LastTransitionTime: metav1.NewTime(time.Now().Add(-since))}}
	_, err = b.c.CoreV1().Nodes().UpdateStatus(b.Context(), n, metav1.UpdateOptions{})
	b.must(err)
}

func (b *bench) get(name string) *corev1.Node {
	b.Helper()
	n, err := b.c.CoreV1().Nodes().Get(b.Context(), name, metav1.GetOptions{})
	b.must(err)
	return n
}

// pod puts a running pod of a kind of owner onto a Node.
func (b *bench) pod(name, node string, change func(*corev1.Pod)) {
	b.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
	if change != nil {
		change(p)
	}
	p, err := b.c.CoreV1().Pods("default").Create(b.Context(), p, metav1.CreateOptions{})
	b.must(err)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	_, err = b.c.CoreV1().Pods("default").UpdateStatus(b.Context(), p, metav1.UpdateOptions{})
	b.must(err)
}

func (b *bench) drainer(timeout time.Duration) *Drainer {
	all := func(_ context.Context, nodes []string) (map[string][]string, error) {
		out := map[string][]string{}
		for _, name := range nodes {
			out[name] = []string{"default"}
		}
		return out, nil
	}
	return &Drainer{Client: b.c, Nodes: b.memory, Events: b.events, Slots: b.slots, Index: all, Most: 4, Namespace: "metal-a", Alone: true, Policy: Policy{Timeout: timeout, Grace: -1}, Every: 200 * time.Millisecond, Again: time.Hour, Patience: 15 * time.Minute, Seen: b.count}
}

func (b *bench) count(err error) {
	if err != nil {
		b.failed.Add(1)
		return
	}
	b.ok.Add(1)
}

// counts waits until so many drains were counted, and so many that could not be.
func (b *bench) counts(ok, failed int64) {
	b.Helper()
	b.until(fmt.Sprintf("%d drained, %d not", ok, failed), func() bool { return b.ok.Load() == ok && b.failed.Load() == failed })
}

// run has a drainer work until what it returns is called, as a process that is killed.
func (b *bench) run(d *Drainer) (kill func()) {
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan error, 1)
	go func() { done <- d.Start(ctx) }()
	killed := false
	kill = func() {
		if !killed {
			killed = true
			stop()
			<-done // it ended
		}
	}
	b.Cleanup(kill)
	return kill
}

// replicas makes a ReplicaSet that the disruption controller counts by, and returns what
// makes a pod its own.
func (b *bench) replicas(n int32) func(*corev1.Pod) {
	b.Helper()
	labels := map[string]string{"app": "web"}
	rs, err := b.c.AppsV1().ReplicaSets("default").Create(b.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.ReplicaSetSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}}}}}, metav1.CreateOptions{})
	b.must(err)
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	}
}

// budget lets so many pods be away, once the disruption controller has seen the pods.
func (b *bench) budget(away int) {
	b.Helper()
	max := intstr.FromInt32(int32(away))
	_, err := b.c.PolicyV1().PodDisruptionBudgets("default").Create(b.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &max, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}, metav1.CreateOptions{})
	b.must(err)
	b.until("the budget is counted", func() bool {
		p, err := b.c.PolicyV1().PodDisruptionBudgets("default").Get(b.Context(), "web", metav1.GetOptions{})
		return err == nil && p.Status.ObservedGeneration == p.Generation && p.Status.ExpectedPods > 0 && int(p.Status.DisruptionsAllowed) == away
	})
}

func (b *bench) pods(node string) int {
	b.Helper()
	l, err := b.c.CoreV1().Pods("").List(b.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	b.must(err)
	return len(l.Items)
}

// TestDrain: a node asks, its pods go by the eviction API, it is told so and counted, and it is
// uncordoned when it gave its slot back and is ready. Meanwhile nobody else of the group is
// begun, and a killed instance is gone on from.
func TestDrain(t *testing.T) {
	b := newBench(t)
	of := b.replicas(2)
	b.node("n1", false)
	b.node("n2", false)
	b.pod("web-1", "n1", of)
	b.pod("web-2", "n2", of)
	b.pod("mirror", "n1", func(p *corev1.Pod) {
		p.Labels, p.Annotations = nil, map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	})
	b.budget(1)
	kill := b.run(b.drainer(time.Minute))
	b.slots.ask("n1")
	b.until("n1 is drained", func() bool { return b.slots.drained("n1") })
	if n := b.get("n1"); !n.Spec.Unschedulable || b.pods("n1") != 1 || b.slots.said[0] != "n1: 1 pods were evicted" {
		t.Errorf("unschedulable %v, %d pods, %q", n.Spec.Unschedulable, b.pods("n1"), b.slots.said)
	}
	b.counts(1, 0)
	kill() // in the middle of it all

	// It comes back, gives its slot back, and is not ready yet: n2 waits.
	b.well("n1", false)
	b.slots.free("n1")
	b.slots.ask("n2")
	d := b.drainer(time.Minute)
	b.must(b.look(d))
	b.must(b.look(d))
	if n := b.get("n2"); n.Spec.Unschedulable || !b.get("n1").Spec.Unschedulable {
		t.Error("the next one was begun while the last was not ready")
	}
	b.well("n1", true)
	b.run(d)
	b.until("n1 is uncordoned", func() bool { n := b.get("n1"); return !n.Spec.Unschedulable && n.Annotations[Annotation] == "" })
	b.until("n2 is begun", func() bool { return b.get("n2").Spec.Unschedulable })
}

// TestBudgetThatNeverAllows: it times out, says so, and the Node is given back; a window that
// closes ends the drain at once.
func TestBudgetThatNeverAllows(t *testing.T) {
	b := newBench(t)
	of := b.replicas(1)
	b.node("n1", false)
	b.pod("web-1", "n1", of)
	b.budget(0)
	kill := b.run(b.drainer(3 * time.Second)) // less than askAgain
	b.slots.ask("n1")
	b.until("it is given up", func() bool {
		return b.events.has("n1 DrainFailed") && b.events.has("n1 Released it could not be drained")
	})
	if evictions := b.asked.evictions(); len(evictions) != 1 {
		t.Errorf("the budget was asked %d times, want once and then a pause", len(evictions))
	}
	if n := b.get("n1"); n.Spec.Unschedulable || n.Annotations[Annotation] != "" || b.pods("n1") != 1 || b.slots.drained("n1") {
		t.Errorf("%v %v, %d pods", n.Spec, n.Annotations, b.pods("n1"))
	}
	if !b.events.has("global timeout reached") {
		t.Errorf("events: %q", b.events.lines)
	}
	b.counts(0, 1)
	kill()

	b.run(b.drainer(time.Hour)) // another instance, with more patience
	b.until("it is begun again", func() bool { return b.get("n1").Spec.Unschedulable })
	b.slots.free("n1") // its window closed
	b.until("it is uncordoned", func() bool { return !b.get("n1").Spec.Unschedulable })

	// That is not a failure: nobody is warned, nothing is counted, and the next window has its drain.
	b.until("it is told", func() bool { return b.events.has("n1 Released its slot was given up before it was drained") })
	if b.events.count("DrainFailed") != 1 {
		t.Errorf("events: %q", b.events.lines)
	}
	b.counts(0, 1)
	b.slots.ask("n1")
	b.until("it is begun at once", func() bool { return b.get("n1").Spec.Unschedulable })
}

// TestWhatIsLeftAlone: a cordon of somebody else stays, pods of DaemonSets stay, what nobody
// would make again is not deleted, and a machine that is not a Node waits for nobody.
func TestWhatIsLeftAlone(t *testing.T) {
	b := newBench(t)
	b.node("n1", true)
	b.pod("agent", "n1", func(p *corev1.Pod) {
		ds, err := b.c.AppsV1().DaemonSets("default").Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"},
			Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}}}}}, metav1.CreateOptions{})
		b.must(err)
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	})
	b.run(b.drainer(10 * time.Second))
	b.slots.ask("n1")
	b.until("n1 is drained", func() bool { return b.slots.drained("n1") })
	b.slots.free("n1")
	b.until("it is let go", func() bool { return b.get("n1").Annotations[Annotation] == "" })
	if n := b.get("n1"); !n.Spec.Unschedulable || b.pods("n1") != 1 {
		t.Errorf("unschedulable %v, %d pods", n.Spec.Unschedulable, b.pods("n1"))
	}

	b.node("n2", false)
	b.pod("bare", "n2", nil)
	b.slots.ask("n2")
	b.until("it is given up", func() bool { return b.events.has("n2 DrainFailed") })
	if !b.events.has("declare no controller") || b.pods("n2") != 1 {
		t.Errorf("events: %q", b.events.lines)
	}
	b.slots.free("n2")

	b.slots.ask("elsewhere")
	b.until("a machine that is not a Node", func() bool { return b.slots.drained("elsewhere") })
}

// TestTwoFleets: what is done to a Node for one fleet is left alone by another, whose slots do
// not have it, also while the Node is not ready; and a Node is not drained for two at once.
func TestTwoFleets(t *testing.T) {
	b := newBench(t)
	b.node("n1", false)
	b.node("n2", false)
	other := b.drainer(time.Minute)
	others := &slots{}
	other.Slots, other.Namespace = others, "metal-b"
	kill := b.run(other)
	others.ask("n1")
	b.until("n1 is drained for metal-b", func() bool { return others.drained("n1") })
	kill()

	d := b.drainer(time.Minute)
	held := func(when string) {
		t.Helper()
		b.must(b.look(d))
		if n := b.get("n1"); !n.Spec.Unschedulable || n.Annotations[Annotation] == "" {
			t.Errorf("%s: metal-a gave back what was drained for metal-b", when)
		}
	}
	held("ready")
	b.well("n1", false)
	held("not ready")
	b.run(d)
	b.slots.ask("n2") // no Node of metal-a's is unwell
	b.until("n2 is drained for metal-a", func() bool { return b.slots.drained("n2") })

	b.slots.ask("n1")
	if err := b.look(d); err == nil || !strings.Contains(err.Error(), "namespace metal-b") {
		t.Errorf("both fleets ask for one Node: %v", err)
	}
	if b.slots.drained("n1") {
		t.Error("n1 is drained for both fleets")
	}
	others.free("n1")
	b.well("n1", true)
	b.run(other)
	b.until("metal-a has its turn", func() bool { return b.slots.drained("n1") })
}

// TestOlderMark: a mark that names no fleet is of the fleet in which the Node has a slot, or of
// the only one.
func TestOlderMark(t *testing.T) {
	held, alone, other := mark{Group: "default"}, &Drainer{Namespace: "metal-a", Alone: true}, &Drainer{Namespace: "metal-a"}
	if !alone.owns(held, false) || !other.owns(held, true) || other.owns(held, false) {
		t.Error("whose an older mark is")
	}
	b := newBench(t)
	b.node("n1", true)
	n := b.get("n1")
	n.Annotations = map[string]string{Annotation: `{"group":"default","cordoned":true}`}
	_, err := b.c.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	b.must(err)
	d := b.drainer(time.Minute)
	d.Alone = false
	b.slots.ask("n1")
	b.run(d)
	b.until("it is drained", func() bool { return b.slots.drained("n1") })
	b.markedBy(d, "n1")
	b.slots.free("n1")
	b.until("it is uncordoned", func() bool { return !b.get("n1").Spec.Unschedulable })
}

// TestSlotsOfTwo: in a group of two slots a Node that gave its slot back and is not ready keeps
// others from being begun, whatever else has a slot.
func TestSlotsOfTwo(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"n1", "n2", "n3"} {
		b.node(name, false)
	}
	kill := b.run(b.drainer(time.Minute))
	b.slots.ask("n1")
	b.slots.ask("n2")
	b.until("two are drained", func() bool { return b.slots.drained("n1") && b.slots.drained("n2") })
	kill()
	b.well("n1", false)
	b.slots.free("n1")
	b.slots.ask("n3")
	d := b.drainer(time.Minute)
	b.known()
	for range 50 { // in whatever order it meets n1 and n2
		b.must(d.Look(t.Context()))
	}
	if b.get("n3").Spec.Unschedulable {
		t.Error("n3 was begun while n1 was not ready")
	}
	b.well("n1", true)
	b.run(d)
	b.until("n3 is begun", func() bool { return b.slots.drained("n3") })
}

// TestWhoIsAsked: looking asks an API server for nothing while no slot is held, and a machine
// that memory does not know is asked for before it waits for nobody.
func TestWhoIsAsked(t *testing.T) {
	b := newBench(t)
	b.node("n1", false)
	d := b.drainer(time.Minute)
	b.known()
	for range 10 {
		b.must(d.Look(t.Context()))
	}
	if paths := b.asked.reset(); len(paths) > 0 {
		t.Errorf("with no slot held it asked for %q", paths)
	}
	d.Nodes = unknowing{}
	b.slots.ask("n1")
	b.slots.ask("elsewhere")
	b.must(d.Look(t.Context()))
	b.until("n1 is drained", func() bool { return b.slots.drained("n1") })
	if !b.get("n1").Spec.Unschedulable || !b.slots.drained("elsewhere") {
		t.Errorf("memory is behind, and it said %q", b.slots.said)
	}
	d.work.wg.Wait()
}

// unknowing is a memory that does not have the Nodes yet.
type unknowing struct{ client.Reader }

func (unknowing) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
