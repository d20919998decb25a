// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
)

// TestSignature is the example of the specification.
func TestSignature(t *testing.T) {
	secret, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Error(got)
	}
	for _, bad := range []string{"", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!"} {
		if _, err := ParseSecret(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// taker is a receiver's own side: it answers as it is told, and notes what came.
type taker struct {
	mu     sync.Mutex
	answer []int // of the next requests; 204 behind them
	ids    []string
	bodies []string
	wrong  []string
	all    chan struct{} // has a value after each request
}

func (k *taker) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body) // it is compared
	k.mu.Lock()
	defer k.mu.Unlock()
	id := req.Header.Get("Webhook-Id")
	if req.Header.Get("Webhook-Signature") != signature([]byte("s"), id, req.Header.Get("Webhook-Timestamp"), body) {
		k.wrong = append(k.wrong, id)
	}
	k.ids, k.bodies = append(k.ids, id), append(k.bodies, string(body))
	status := http.StatusNoContent
	if len(k.answer) > 0 {
		status, k.answer = k.answer[0], k.answer[1:]
	}
	w.Header().Set("Location", "/elsewhere")
	w.WriteHeader(status)
	k.all <- struct{}{}
}

// receiving starts a receiver whose waits are noted and not waited.
func receiving(t *testing.T, k *taker) (r *Receiver, waits func() []time.Duration, said func() string) {
	t.Helper()
	k.all = make(chan struct{}, 10_000)
	s := httptest.NewServer(k)
	t.Cleanup(s.Close)
	var mu sync.Mutex
	var waited []time.Duration
	var log strings.Builder
	hook, err := url.Parse(s.URL + "/hook/xoxb-secret")
	if err != nil {
		t.Fatal(err)
	}
	r = To(hook, []byte("s"), func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&log, format+"\n", args...)
	})
	at := time.Unix(1_000_000, 0)
	r.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return at }
	r.wait = func(_ context.Context, d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		waited, at = append(waited, d), at.Add(d)
	}
	return r, func() []time.Duration { mu.Lock(); defer mu.Unlock(); return slices.Clone(waited) }, func() string { mu.Lock(); defer mu.Unlock(); return log.String() }
}

func run(t *testing.T, r *Receiver) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
}

// TestDelivery: a message is sent until it is taken, with one id, in order, and led nowhere else.
func TestDelivery(t *testing.T) {
	k := &taker{answer: []int{500, 302, 404}}
	r, waits, said := receiving(t, k)
	for i := range 2 {
		if err := r.Tell(Event{"x", time.Unix(0, 0).UTC(), i}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, r)
	for range 5 {
		<-k.all
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.wrong) > 0 || len(k.ids) != 5 || len(slices.Compact(slices.Clone(k.ids))) != 2 || k.bodies[0] != k.bodies[3] || k.bodies[4] != `{"type":"x","timestamp":"1970-01-01T00:00:00Z","data":1}` {
		t.Errorf("%q %q, wrong: %q", k.ids, k.bodies, k.wrong)
	}
	if !slices.Equal(waits(), []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}) {
		t.Errorf("waits %v", waits())
	}
	if log := said(); strings.Contains(log, "xoxb") || strings.Count(log, "it answers 500") != 1 || strings.Contains(log, "302") || !strings.Contains(log, "takes messages again\n") {
		t.Errorf("the log says %q", log)
	}
}

// TestGivenUp: one that nobody takes is given up after a day, at most a minute apart; those behind
// it are bounded.
func TestGivenUp(t *testing.T) {
	k := &taker{answer: slices.Repeat([]int{503}, 1447)}
	r, waits, said := receiving(t, k)
	for i := range mostWaiting + 7 {
		if err := r.Tell(Event{"x", time.Unix(0, 0), i}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, r)
	for range 1460 {
		<-k.all
	}
	var sum, most time.Duration
	for _, d := range waits() {
		sum, most = sum+d, max(most, d)
	}
	if most != longest || sum > 2*giveUp {
		t.Errorf("waited %v, at most %v", sum, most)
	}
	if log := said(); !strings.Contains(log, "is given up after 24h") || !strings.Contains(log, "the oldest 7 had no room") {
		t.Errorf("the log says %q", log)
	}
}

// TestChanges: what changed is told once, and a fleet that changes all at once in one message.
func TestChanges(t *testing.T) {
	at := time.Unix(7, 5)
	before := Seen{At: at, Nodes: map[string]Is{"a": {"fine", ""}, "b": {"broken", "x"}, "gone": {"retired", ""}}, Rollouts: map[string]string{"r": "running"}}
	if got := Changes(before, Seen{At: at, Nodes: before.Nodes, Rollouts: before.Rollouts}); got != nil {
		t.Errorf("nothing changed: %+v", got)
	}
	now := Seen{At: at, Nodes: map[string]Is{"a": {"silent", "since 5"}, "b": {"broken", "y"}, "new": {"never", ""}}, Rollouts: map[string]string{"r": "halted", "s": "running"},
		Acts: []audit.Row{audit.New(at, "eve", audit.Accept, "a", "k")}}
	text, err := json.Marshal(Changes(before, now))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"changed":[{"node":"a","from":"fine","to":"silent","why":"since 5"},{"node":"gone","from":"retired","to":""},{"node":"new","from":"","to":"never"}],"conditions":{"broken":1,"never":1,"silent":1},"more":0`,
		`"rollout.changed"`, `{"from":"running","rollout":"r","to":"halted"},{"from":"","rollout":"s","to":"running"}`, `"audit.added"`, `"who":"eve"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	hall := Seen{At: at, Nodes: map[string]Is{}}
	for i := range 5000 {
		hall.Nodes[fmt.Sprint(i)] = Is{"silent", ""}
	}
	all := Changes(Seen{}, hall)
	if data := all[0].Data.(map[string]any); len(all) != 1 || len(data["changed"].([]changed)) != mostListed || data["more"] != 4900 {
		t.Errorf("%d events", len(all))
	}
}

// TestLogsNameNoURL: many receivers tell friends by what is in the URL.
func TestLogsNameNoURL(t *testing.T) {
	at, err := url.Parse("http://127.0.0.1:1/hook/xoxb-secret")
	if err != nil {
		t.Fatal(err)
	}
	err = To(at, []byte("s"), t.Logf).send(t.Context(), message{id: "m"})
	if err == nil || strings.Contains(err.Error(), "xoxb") || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

// TestStolenReceiver: a receiver that answers without end, or never, or leads elsewhere, costs another
// one no message, and the service no memory and no request to where it points.
func TestStolenReceiver(t *testing.T) {
	inside := make(chan string, 100)
	within := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { inside <- req.Method }))
	defer within.Close()
	came, over := make(chan struct{}, 100), make(chan struct{})
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		came <- struct{}{}
		switch req.URL.Path {
		case "/leads":
			http.Redirect(w, req, within.URL, http.StatusTemporaryRedirect) // which has a client post again
		case "/silent":
			<-over
		case "/endless":
			for req.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}
	}))
	defer thief.Close()
	defer close(over)
	k := &taker{}
	honest, _, _ := receiving(t, k)
	all := []*Receiver{honest}
	for _, path := range []string{"/leads", "/silent", "/endless"} {
		at, err := url.Parse(thief.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, To(at, []byte("s"), t.Logf))
	}
	for _, r := range all {
		run(t, r)
	}
	for i := range 20 {
		for _, r := range all {
			if err := r.Tell(Event{"x", time.Unix(0, 0), i}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 20 {
		<-k.all
	}
	for range 3 { // each was asked
		<-came
	}
	if len(inside) > 0 {
		t.Errorf("the thief has the service ask within: %s", <-inside)
	}
}
