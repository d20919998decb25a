// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/prune"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// line leads to a registry, and notes what the tag of each node leads to: that is what the
// node takes, whatever the index says.
type line struct {
	at string

	mu    sync.Mutex
	left  int                 // requests until it is cut; -1 is never
	cut   func()              // when it is; nil where the registry fails from then on
	ahead time.Duration       // of the fleet's clock: a publisher compares its own with the registry's
	meets func(*http.Request) // sees each request that is not cut; nil is nobody
	had   map[string][]string // by node: digests of overlays, each other than the one before
}

func newLine(t *testing.T, server string) *line {
	to, err := url.Parse("http://" + server)
	must(t, err)
	l := &line{left: -1, had: map[string][]string{}}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(r *http.Response) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		r.Header.Set("Date", time.Now().Add(l.ahead).UTC().Format(http.TimeFormat))
		return nil
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.isCut() {
			w.WriteHeader(http.StatusInsufficientStorage) // which no client of a registry tries again
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		l.note(r, body)
		if l.meets != nil {
			l.meets(r)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	l.at = s.Listener.Addr().String()
	return l
}

func (l *line) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left > 0 {
		l.left--
	}
	if l.left == 0 && l.cut != nil {
		l.cut()
	}
	return l.left == 0
}

// note keeps what a node's tag leads to.
func (l *line) note(r *http.Request, body []byte) {
	_, name, isTag := strings.Cut(r.URL.Path, "/"+oci.RepoNode+"/manifests/")
	m, err := oci.ParseManifest(body)
	if r.Method != http.MethodPut || !isTag || err != nil || m.ArtifactType != oci.TypeOverlay {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	digest := m.Layers[0].Digest
	if had := l.had[name]; len(had) == 0 || had[len(had)-1] != digest {
		l.had[name] = append(had, digest)
	}
}

// cutAt has the line cut after so many requests; what it returns mends it.
func (l *line) cutAt(requests int, cut func()) (mend func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.cut = requests, cut
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.left = -1
	}
}

// moves forgets what nodes had but for what they have, and returns how often each moved.
func (l *line) moves() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	moves := map[string]int{}
	for name, had := range l.had {
		moves[name] = len(had) - 1
		l.had[name] = had[len(had)-1:]
	}
	return moves
}

// scene is something that is cut, and what becomes of it.
type scene struct {
	name    string
	prepare func(f *fleet)                            // to where it can be done
	do      func(ctx context.Context, f *fleet) error // is cut
	then    func(f *fleet)                            // comes before it is done again, by others
	again   func(f *fleet)                            // to the end; nil is a run
	back    bool                                      // nodes go forward, and back
}

func (f *fleet) step(ctx context.Context) error {
	_, _, err := f.driver().Step(ctx)
	return err
}

func doing(verb Verb) func(context.Context, *fleet) error {
	return func(ctx context.Context, f *fleet) error {
		p := f.p
		p.Now = f.now
		_, err := verb.Do(ctx, &p, f.policy(), publish.By{Author: "eve"}, "roll")
		return err
	}
}

// untilHalt runs to a halt.
func (f *fleet) untilHalt() {
	f.t.Helper()
	if err := f.run(); !errors.Is(err, ErrHalted) {
		f.t.Fatalf("it ended with %v", err)
	}
}

var nothing = func(*fleet) {}

// secondWave runs until the first wave is done.
func secondWave(f *fleet) {
	f.reach(1)
	for f.row().Waves[0].Done == 0 {
		f.steps(1)
	}
}

var scenes = []scene{
	{name: "a wave", prepare: nothing, do: func(ctx context.Context, f *fleet) error { return f.step(ctx) }},
	{name: "the next wave", prepare: secondWave, do: func(ctx context.Context, f *fleet) error { return f.step(ctx) }},
	{name: "a wave, and a publish of others", prepare: nothing, do: func(ctx context.Context, f *fleet) error { return f.step(ctx) }, then: func(f *fleet) {
		value, other := f.value, f.names[len(f.names)-2] // of a later wave: those of one under way are not to be had
		f.value = f.before
		f.p.Now = f.now
		_, err := f.p.Publish(f.t.Context(), f.policy(), f.compile(), publish.Options{Only: func(name string) bool { return name == other }})
		must(f.t, err)
		f.value = value
	}},
	{name: "a wave, and a hold", prepare: nothing, do: func(ctx context.Context, f *fleet) error { return f.step(ctx) }, then: func(f *fleet) {
		f.hold(f.verbs()["freeze"], "n00003")
		f.hold(f.verbs()["forward"], "n00003")
	}},
	{name: "a wave, a refresh and a prune", prepare: nothing, do: func(ctx context.Context, f *fleet) error { return f.step(ctx) }, then: func(f *fleet) {
		f.p.Now = f.now
		policy := f.policy()
		p := f.p
		p.Trust = &policy
		_, _ = prune.Run(f.t.Context(), &p.Reader, p.Alone, prune.Keep{Versions: 1, Generations: 2}, false) // what was cut comes first
		_, err := p.Refresh(f.t.Context(), publish.Lists{})
		must(f.t, err)
		_, err = prune.Run(f.t.Context(), &p.Reader, p.Alone, prune.Keep{Versions: 1, Generations: 2}, false)
		must(f.t, err)
	}},
	{name: "a wave, and an abort", prepare: nothing, do: func(ctx context.Context, f *fleet) error { return f.step(ctx) }, then: func(f *fleet) { f.do(Abort) },
		again: func(f *fleet) { f.publish() }},
	{name: "a wave, and an undo", prepare: nothing, do: func(ctx context.Context, f *fleet) error { return f.step(ctx) }, then: func(f *fleet) { f.do(Undo) },
		again: nothing, back: true},
	{name: "an undo", prepare: secondWave, do: doing(Undo), again: func(f *fleet) { _ = f.try(Undo) }, back: true}, // refused where nothing was left
	{name: "an undo, and a hold", prepare: secondWave, do: doing(Undo), then: func(f *fleet) {
		f.hold(f.verbs()["freeze"], "n00003")
		f.hold(f.verbs()["forward"], "n00003")
	}, again: func(f *fleet) { _ = f.try(Undo) }, back: true},
	{name: "an undo that a run goes on with", prepare: secondWave, do: doing(Undo), again: func(f *fleet) {
		for range 3 {
			if f.step(f.t.Context()) != nil {
				break
			}
		}
		_ = f.try(Undo)
	}, back: true},
	{name: "a halt", prepare: func(f *fleet) {
		f.reach(1)
		f.nodes["n00001"].sick = f.value
		f.tick(31 * time.Minute)
	}, do: func(ctx context.Context, f *fleet) error { return f.step(ctx) }, again: func(f *fleet) {
		f.untilHalt()
		f.do(Abort)
	}, back: true},
	{name: "an abort", prepare: secondWave, do: doing(Abort), again: func(f *fleet) {
		_ = f.try(Abort) // refused where it was done
		f.publish()
	}},
	{name: "a start", do: func(ctx context.Context, f *fleet) error {
		o, p := f.order(f.value), f.p
		p.Now = f.now
		_, _, err := Start(ctx, &p, f.policy(), publish.By{}, o)
		return err
	}, again: func(f *fleet) {
		_, _ = f.start(f.value) // refused where it was done
		must(f.t, f.finish())
	}},
}

// cuts plays a scene again and again, each time cut a few requests later, until it is
// through, and returns how often it was cut: at odd requests the registry is away from then
// on, at even ones the publisher is killed. No node moves more than once each way.
func (f *fleet) cuts(l *line, s scene, from, more int) (cuts int) {
	t := f.t
	for at := from; ; at += more {
		l.ahead = time.Until(f.now)
		f.before = f.value
		f.round++
		f.value = fmt.Sprint(1 + f.round%100)
		if s.prepare != nil {
			_, err := f.start(f.value)
			must(t, err)
			s.prepare(f)
		}
		ctx, cancel := context.WithCancel(f.t.Context())
		kill := cancel
		if at%2 == 1 {
			kill = nil // it lives, and the registry is away
		}
		mend := l.cutAt(at, kill)
		err := s.do(ctx, f)
		mend()
		cancel()
		f.now = f.now.Add(6 * time.Hour) // until the reservation of the dead is not honoured any more
		l.ahead = time.Until(f.now)
		f.tick(0)
		if err != nil {
			cuts++
		}
		if s.then != nil {
			s.then(f)
			f.tick(time.Minute)
		}
		switch {
		case s.again != nil:
			s.again(f)
		default:
			must(t, f.finish())
		}
		f.tick(time.Minute)
		most := 1
		if s.back {
			most = 2
		}
		for name, n := range l.moves() {
			if n > most {
				t.Errorf("cut at request %d: node %s moved %d times", at, name, n)
			}
		}
		want := f.value
		if s.back {
			want, f.value = f.before, f.before
			for _, n := range f.nodes {
				n.sick = ""
			}
		}
		f.want(map[string]int{want: len(f.names)})
		if t.Failed() {
			t.Fatalf("cut at request %d with %v", at, err)
		}
		if err == nil {
			return cuts
		}
	}
}

const fourNodes = "{waves: [{count: 2}], soak: 1m, deadline: 30m, silence: 30h}"

// A rollout that is cut anywhere goes on where it was: no matter which program is killed, and whatever
// comes next, no node moves more than once each way.
func TestCutSomewhere(t *testing.T) {
	require.Slow(t)
	server := registrytest.WithReferrers(t)
	for i, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			l := newLine(t, server)
			f := newFleet(t, l.at+fmt.Sprintf("/metal%d", i), 4, fourNodes)
			if n := f.cuts(l, s, 5+i%3, 5); n < 2 {
				t.Errorf("%d cuts: it is shorter than it was", n)
			}
		})
	}
}

// The same at every request, with another registry, and with more nodes.
func TestLongCutEverywhere(t *testing.T) {
	require.Long(t)
	for _, c := range []struct {
		name   string
		server func(testing.TB) string
		nodes  int
		rule   string
		more   int // even: all cuts from one number on are of one sort, see cuts
	}{
		{"every request", registrytest.WithReferrers, 4, fourNodes, 2},
		{"docker-registry", registrytest.Distribution, 4, fourNodes, 14},
		{"thirty nodes", registrytest.WithReferrers, 30, "{waves: [{count: 10}, {percent: 30}], soak: 1m, deadline: 30m, silence: 30h}", 32},
	} {
		server := c.server(t)
		for i, s := range scenes {
			for _, from := range []int{1, 2} { // odd: the registry is away; even: the publisher is killed
				t.Run(fmt.Sprintf("%s, %s %d", c.name, s.name, from), func(t *testing.T) {
					if c.more > 2 {
						from += 2 * rand.IntN(c.more/2)
					}
					l := newLine(t, server)
					f := newFleet(t, l.at+fmt.Sprintf("/metal%d-%d", i, from), c.nodes, c.rule)
					t.Logf("%d cuts from request %d on", f.cuts(l, s, from, c.more), from)
				})
			}
		}
	}
}

// finish runs to the good end.
func (f *fleet) finish() error {
	if err := f.run(); !errors.Is(err, ErrEnded) {
		return err
	}
	return nil
}
