// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// at returns another publisher of the same fleet, on another machine.
func (f *fleet) at(t testing.TB, ref string) *Publisher {
	t.Helper()
	r, err := registry.Open(ref, registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	p := *f.Publisher
	p.Registry, p.Memory, p.NewFleet, p.Now = r, nil, true, time.Now().UTC().Truncate(time.Second)
	SetPace(&p, reserve.Pace{Beat: time.Second, Hold: time.Minute, Look: 200 * time.Millisecond, Dead: 3 * time.Minute})
	return &p
}

// unrenewed is an intent that does not say that its publisher renews it.
var unrenewed = oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: "application/vnd.caisson.intent.v1+json",
	Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{}})

// through lets hook see every request of one publisher before the registry does.
func through(t testing.TB, backend string, hook func(q *http.Request)) string {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		hook(q)
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://") + "/metal-a"
}

func isList(q *http.Request) bool { return strings.HasSuffix(q.URL.Path, "/fleet/tags/list") }
func isIntent(q *http.Request) bool {
	return q.Method == http.MethodPut && strings.Contains(q.URL.Path, "/manifests/intent-")
}
func isOverlay(q *http.Request) bool {
	return q.Method == http.MethodPut && strings.Contains(q.URL.Path, "/node/manifests/")
}

func servers(t *testing.T, run func(t *testing.T, backend string)) {
	for name, start := range map[string]func(testing.TB) string{"docker-registry": registrytest.Distribution, "in memory": registrytest.WithReferrers} {
		t.Run(name, func(t *testing.T) { run(t, start(t)) })
	}
}

// Two publishers announce themselves before either looks around: at most one goes
// on, no matter who looks after the other has withdrawn.
func TestBothAnnounceThenLook(t *testing.T) {
	servers(t, func(t *testing.T, backend string) {
		f := newFleet(t)
		var both sync.WaitGroup
		both.Add(2)
		var errs [2]error
		var done sync.WaitGroup
		for i := range errs {
			var once sync.Once
			ref := through(t, backend, func(q *http.Request) {
				if isList(q) {
					once.Do(func() { both.Done(); both.Wait() })
				}
			})
			p := f.at(t, ref)
			done.Go(func() {
				_, errs[i] = p.Publish(t.Context(), f.Policy, f.Nodes("", fmt.Sprint(i)), Options{})
				once.Do(both.Done) // one that failed earlier lets the other go on
			})
		}
		done.Wait()
		won := uint64(0)
		for _, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, reserve.ErrTaken) {
				t.Error(err)
			}
		}
		if won == 2 {
			t.Error("both went on")
		}
		// What they announced is withdrawn, so that the next one is alone.
		if r, err := f.at(t, backend+"/metal-a").Publish(t.Context(), f.Policy, f.Nodes("", "10"), Options{}); err != nil || r.Generation != won+1 {
			t.Errorf("afterwards: %+v, %v", r, err)
		}
	})
}

// One is at work when the other announces itself: the other is refused, with what
// to do, and the first one ends well.
func TestOneIsAtWork(t *testing.T) {
	require.Slow(t)
	servers(t, func(t *testing.T, backend string) {
		f := newFleet(t)
		var once sync.Once
		var second error
		other := f.at(t, backend+"/metal-a")
		first := f.at(t, through(t, backend, func(q *http.Request) {
			if isOverlay(q) {
				once.Do(func() { _, second = other.Publish(t.Context(), f.Policy, f.Nodes("", "20"), Options{}) })
			}
		}))
		if r, err := first.Publish(t.Context(), f.Policy, f.Nodes("", "10"), Options{}); err != nil || r.Generation != 1 {
			t.Errorf("the first: %+v, %v", r, err)
		}
		var hinted interface{ Hint() string }
		if !errors.Is(second, reserve.ErrTaken) || !errors.As(second, &hinted) || !strings.Contains(hinted.Hint(), "--ignore-intent intent-0-1-") {
			t.Errorf("the second: %v", second)
		}
		if r, err := other.Publish(t.Context(), f.Policy, f.Nodes("", "20"), Options{}); err != nil || r.Generation != 2 {
			t.Errorf("the second again: %+v, %v", r, err)
		}
	})
}

// One comes and goes between the other's look at the index and its announcement.
func TestOneWasFaster(t *testing.T) {
	servers(t, func(t *testing.T, backend string) {
		f := newFleet(t)
		other := f.at(t, backend+"/metal-a")
		var once sync.Once
		slow := f.at(t, through(t, backend, func(q *http.Request) {
			if isIntent(q) {
				once.Do(func() {
					if r, err := other.Publish(t.Context(), f.Policy, f.Nodes("", "10"), Options{}); err != nil || r.Generation != 1 {
						t.Errorf("the fast one: %+v, %v", r, err)
					}
				})
			}
		}))
		if _, err := slow.Publish(t.Context(), f.Policy, f.Nodes("", "20"), Options{}); !errors.Is(err, reserve.ErrTaken) {
			t.Errorf("the slow one: %v", err)
		}
		if r, err := slow.Publish(t.Context(), f.Policy, f.Nodes("", "20"), Options{}); err != nil || r.Generation != 2 {
			t.Errorf("the slow one again: %+v, %v", r, err)
		}
	})
}

// Behind a wait for one that died, or for one that is at work, the time is another one.
func TestTimeIsTakenAfterTheWait(t *testing.T) {
	for name, other := range map[string][]byte{"died": nil, "is at work": unrenewed} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			backend := registrytest.WithReferrers(t)
			first := f.at(t, backend+"/metal-a")
			if _, err := first.Publish(t.Context(), f.Policy, f.Nodes("", "1"), Options{}); err != nil {
				t.Fatal(err)
			}
			busy := reserve.Intent{Generation: 2, At: first.Now, Nonce: "busy"}
			if other == nil {
				SetPace(first, reserve.Pace{Beat: time.Hour, Hold: time.Nanosecond, Look: time.Second, Dead: time.Minute})
				if _, err := first.Publish(t.Context(), f.Policy, f.Nodes("", "2"), Options{}); !errors.Is(err, reserve.ErrLost) {
					t.Fatal(err)
				}
			} else if _, err := first.Registry.PutManifest(t.Context(), oci.RepoFleet, oci.MediaTypeManifest, other, busy.Tag()); err != nil {
				t.Fatal(err)
			}
			var waited atomic.Int64 // minutes
			var once sync.Once
			p := f.at(t, through(t, backend, func(q *http.Request) {
				if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/manifests/intent-") {
					waited.Add(1)
					if other != nil {
						once.Do(func() { must(t, first.Registry.Untag(t.Context(), oci.RepoFleet, busy.Tag())) })
					}
				}
			}))
			began := p.Now
			// However often it looks: a clock that is an hour ahead of the registry's is refused.
			p.Clock = func() time.Time { return began.Add(time.Duration(min(waited.Load(), 30)) * time.Minute) }
			SetPace(p, reserve.Pace{Beat: time.Minute, Hold: time.Hour, Look: time.Millisecond, Dead: 3 * time.Millisecond})
			p.Wait = time.Minute
			var got, want time.Time
			if _, err := p.Advance(t.Context(), f.Policy, "roll", By{}, func(_ context.Context, f *published.Fleet) (*Step, error) {
				got, want = f.Now(), p.Clock()
				return nil, nil
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := hold.Freeze(t.Context(), p, hold.Order{Nodes: []string{"n0"}, Until: began.Add(time.Minute)}); err == nil || !strings.Contains(err.Error(), "the end of the hold is over") {
				t.Errorf("a hold that ended while it waited: %v", err)
			}
			if waited.Load() == 0 || !got.Equal(want) {
				t.Errorf("it decided at %s, and waited until %s", got, want)
			}
		})
	}
}

// A registry that deletes nothing keeps a mark where an intent was; a publisher
// that died is named, and can be passed over.
func TestIntentsThatStay(t *testing.T) {
	f := newFleet(t)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registrytest.WithReferrers(t)})
	proxy.ModifyResponse = func(r *http.Response) error {
		r.Header.Del("Date")
		return nil
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodDelete {
			http.Error(w, `{"errors":[{"code":"UNSUPPORTED"}]}`, http.StatusMethodNotAllowed)
			return
		}
		w.Header()["Date"] = nil // its clock would not go on with the publisher's
		proxy.ServeHTTP(w, q)
	}))
	defer s.Close()
	p := f.at(t, strings.TrimPrefix(s.URL, "http://")+"/metal-a")
	for i := range 3 {
		if _, err := p.Publish(t.Context(), f.Policy, f.Nodes("", fmt.Sprint(i)), Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Refresh(t.Context(), Lists{}); err != nil { // takes an intent and no generation
			t.Fatal(err)
		}
	}
	dead := reserve.Intent{Generation: 4, At: p.Now, Nonce: "dead"}
	if _, err := p.Registry.PutManifest(t.Context(), oci.RepoFleet, oci.MediaTypeManifest, unrenewed, dead.Tag()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(t.Context(), f.Policy, f.Nodes("", "x"), Options{}); !errors.Is(err, reserve.ErrTaken) {
		t.Errorf("beside another's intent: %v", err)
	}
	p.IgnoreIntent = dead.Tag()
	if _, err := p.Publish(t.Context(), f.Policy, f.Nodes("", "x"), Options{}); err != nil {
		t.Errorf("the dead one passed over: %v", err)
	}
	p.IgnoreIntent, dead.Generation, dead.Nonce = "", 9, "late"
	if _, err := p.Registry.PutManifest(t.Context(), oci.RepoFleet, oci.MediaTypeManifest, unrenewed, dead.Tag()); err != nil {
		t.Fatal(err)
	}
	p.Now = p.Now.Add(reserve.Honored + time.Minute)
	if _, err := p.Publish(t.Context(), f.Policy, f.Nodes("", "y"), Options{}); err != nil {
		t.Errorf("an intent of hours ago: %v", err)
	}
}

// Many publishers at once, each with content of its own: who is done has a
// generation of its own, and every node finds the content of the last one.
func TestManyPublishers(t *testing.T) {
	require.Slow(t)
	f := newFleet(t)
	for name, ref := range map[string]string{"layout": f.Registry.Ref().String(), "registry": registrytest.WithReferrers(t) + "/metal-a"} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			given := map[uint64]string{}
			var group sync.WaitGroup
			for i := range 12 {
				p := f.at(t, ref)
				group.Go(func() {
					r, err := p.Publish(t.Context(), f.Policy, f.Nodes("", fmt.Sprint(i), fmt.Sprint(i)), Options{})
					if name == "registry" && errors.Is(err, reserve.ErrTaken) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if other, twice := given[r.Generation]; twice {
						t.Errorf("generation %d has two contents: %s, %s", r.Generation, other, r.Published[0].Overlay)
					}
					given[r.Generation] = r.Published[0].Overlay
				})
			}
			group.Wait()
			if name == "layout" && len(given) != 12 {
				t.Errorf("%d of 12 are done", len(given))
			}
			if report, err := verify.Fleet(t.Context(), &f.at(t, ref).Reader, f.Policy, nil, false); len(given) > 0 && (err != nil || !report.OK()) {
				t.Errorf("afterwards: %+v, %v", report, err)
			}
		})
	}
}

// Those that may wait for others all get through, one after another, each with a
// generation of its own.
func TestWaitForOthers(t *testing.T) {
	require.Slow(t)
	servers(t, func(t *testing.T, backend string) {
		f := newFleet(t)
		const publishers = 4
		var mu sync.Mutex
		given := map[uint64]bool{}
		var all sync.WaitGroup
		for i := range publishers {
			p := f.at(t, backend+"/metal-a")
			p.Wait = time.Hour
			all.Go(func() {
				r, err := p.Publish(t.Context(), f.Policy, f.Nodes("", fmt.Sprint(i+10)), Options{})
				mu.Lock()
				defer mu.Unlock()
				if err != nil || given[r.Generation] {
					t.Errorf("publisher %d: %+v, %v", i, r, err)
				}
				given[r.Generation] = true
			})
		}
		all.Wait()
	})
}

// Who has waited for as long as it may is told who is at work.
func TestWaitEnds(t *testing.T) {
	require.Slow(t)
	servers(t, func(t *testing.T, backend string) {
		f := newFleet(t)
		var once sync.Once
		var second error
		var took time.Duration
		other := f.at(t, backend+"/metal-a")
		other.Wait = 2 * time.Second
		first := f.at(t, through(t, backend, func(q *http.Request) {
			if isOverlay(q) {
				once.Do(func() {
					began := time.Now()
					_, second = other.Publish(t.Context(), f.Policy, f.Nodes("", "20"), Options{})
					took = time.Since(began)
				})
			}
		}))
		if _, err := first.Publish(t.Context(), f.Policy, f.Nodes("", "10"), Options{}); err != nil {
			t.Errorf("the first: %v", err)
		}
		if !errors.Is(second, reserve.ErrTaken) || took < other.Wait {
			t.Errorf("the second, after %s: %v", took, second)
		}
	})
}
