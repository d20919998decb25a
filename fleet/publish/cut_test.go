// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/prune"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/freeport"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// line leads to a registry, until it is cut.
type line struct {
	at string

	server  *httptest.Server
	handler http.Handler

	mu   sync.Mutex
	left int       // requests until it is cut; -1 is never
	kill func()    // when it is
	now  time.Time // by its clock: a publisher compares its own with it
}

func newLine(t *testing.T, backend string) *line {
	l := &line{left: -1}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend})
	proxy.ModifyResponse = func(r *http.Response) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		r.Header.Set("Date", l.now.Format(http.TimeFormat))
		return nil
	}
	l.handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !l.passes() {
			w.WriteHeader(http.StatusInsufficientStorage) // which no client of a registry tries again
			return
		}
		// What was sent arrives. Without a Done of its own, the proxy would look at the connection.
		ctx, done := context.WithCancel(context.WithoutCancel(q.Context()))
		defer done()
		proxy.ServeHTTP(w, q.WithContext(ctx))
	})
	must(t, l.open(freeport.Keep(t)))
	t.Cleanup(func() { l.server.Close() })
	return l
}

// open has the line listen at an address.
func (l *line) open(at string) error {
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	l.server = httptest.NewUnstartedServer(l.handler)
	if err := l.server.Listener.Close(); err != nil {
		return err
	}
	l.server.Listener = listener
	l.server.Start()
	l.at = listener.Addr().String()
	return nil
}

func (l *line) passes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left > 0 {
		l.left--
	}
	if l.left == 0 {
		l.kill()
		return false
	}
	return true
}

// cutAt has the line cut at a request, and kill called; what it returns mends it, once all
// has arrived that was under way. Its connections end with it: a request of the publisher
// that was cut may still be in one of them, and must not arrive when the line is mended.
func (l *line) cutAt(request int, kill func()) (mend func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.kill = request, kill
	return func() error {
		l.server.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.left = -1
		return l.open(l.at)
	}
}

// later lets so much time pass that no reservation of the dead is honoured any more.
func (f *fleet) later(l *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Now = f.Now.Add(reserve.Honored + time.Hour)
	l.now = f.Now
}

// values is what three nodes take, as in "10 10 20"; "-" is nothing.
func (f *fleet) values() string {
	f.t.Helper()
	var list []string
	for i := range 3 {
		c, err := trust.Overlay(f.t.Context(), f.Registry.Source(), []string{fmt.Sprintf("n%d", i)}, "")
		if errors.Is(err, oci.ErrNotFound) {
			list = append(list, "-")
			continue
		}
		must(f.t, err)
		var o spec.Overlay
		must(f.t, spec.Decode(c.Document, &o))
		list = append(list, o.Items.Sysctl[0].Value)
	}
	return strings.Join(list, " ")
}

// gives publishes one value for three nodes.
func (f *fleet) gives(ctx context.Context, value string, o Options) error {
	_, err := f.Publish(ctx, f.policy, f.nodes("", value, value, value), o)
	return err
}

// cutPublish is a fleet of three nodes, with the value 10 or with none, of which a publish
// of 20 was cut at a request: at odd ones the registry is away from then on, at even ones
// the publisher is killed. Without an error it came through.
func cutPublish(t *testing.T, l *line, prefix string, isFirst bool, request int) (*fleet, error) {
	f := newFleet(t)
	var err error
	f.Registry, err = registry.Open(l.at+prefix, registry.Options{PlainHTTP: true})
	must(t, err)
	f.Trust, f.NewFleet = &f.policy, true
	f.later(l)
	if !isFirst {
		must(t, f.gives(t.Context(), "10", Options{}))
		f.NewFleet = false
	}
	f.later(l)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	if request%2 == 1 {
		kill = func() {} // it lives
	}
	mend := l.cutAt(request, kill)
	err = f.gives(ctx, "20", Options{})
	must(t, mend())
	return f, err
}

// TestCutSomewhere cuts a publish, and then does something else. That ends it, puts back
// what it had moved, or refuses and says what does; and the same publish ends it in any case.
func TestCutSomewhere(t *testing.T) {
	require.Slow(t)
	everywhere(t, 9)
}

// The same at every request.
func TestLongCutEverywhere(t *testing.T) {
	require.Long(t)
	everywhere(t, 1)
}

func everywhere(t *testing.T, more int) {
	n2 := Options{Only: func(name string) bool { return name == "n2" }}
	server := registrytest.WithReferrers(t)
	for i, c := range []struct {
		name string
		do   func(ctx context.Context, f *fleet) error
		want string // where the publish of 20 was not through
	}{
		{"the same", func(ctx context.Context, f *fleet) error { return f.gives(ctx, "20", Options{}) }, "20 20 20"},
		{"another", func(ctx context.Context, f *fleet) error { return f.gives(ctx, "30", Options{}) }, "30 30 30"},
		{"of one node", func(ctx context.Context, f *fleet) error { return f.gives(ctx, "30", n2) }, "10 10 30"},
		{"refresh", func(ctx context.Context, f *fleet) error { _, err := f.Refresh(ctx, Lists{}); return err }, "10 10 10"},
		{"freeze", func(ctx context.Context, f *fleet) error {
			_, err := f.Freeze(ctx, Hold{Nodes: []string{"n1"}})
			return err
		}, "10 10 10"},
		{"retire", func(ctx context.Context, f *fleet) error { _, err := f.Retire(ctx, []string{"n2"}, By{}); return err }, "10 10 -"},
		{"prune", func(ctx context.Context, f *fleet) error {
			_, err := prune.Run(ctx, &f.Reader, f.Alone, prune.Keep{Versions: 1, Generations: 2}, false)
			return err
		}, ""},
	} {
		for _, isFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, first %v", c.name, isFirst), func(t *testing.T) {
				l, cuts := newLine(t, server), 0
				for request := 1 + i%more; ; request += more {
					f, cut := cutPublish(t, l, fmt.Sprintf("/%d-%v-%d", i, isFirst, request), isFirst, request)
					f.follows(l, c.do, c.want, isFirst)
					if t.Failed() {
						t.Fatalf("cut at request %d with %v", request, cut)
					}
					if cut == nil {
						break
					}
					cuts++
				}
				t.Logf("%d cuts", cuts)
				if cuts < 27/more {
					t.Errorf("%d cuts: it is shorter than it was", cuts)
				}
			})
		}
	}
}

// follows lets something come after a publish of 20, and at last the same publish.
func (f *fleet) follows(l *line, do func(context.Context, *fleet) error, want string, isFirst bool) {
	t := f.t
	t.Helper()
	left := f.values()
	f.later(l)
	err := do(t.Context(), f)
	got := f.values()
	if err == nil {
		if got != "- - -" { // of a first publish that came to nothing
			f.isGreen(got)
		}
		through := strings.ReplaceAll(want, "10", "20")
		if want != "" && got != want && got != through && !isFirst {
			t.Errorf("nodes had %s, and have %s, want %s or %s", left, got, want, through)
		}
	} else if hint := hintOf(err); got != left || !isFirst && !strings.Contains(hint, "'caisson publish' again") {
		t.Errorf("nodes had %s, and have %s: %v\n%s", left, got, err, hint)
	}
	f.later(l)
	must(t, f.gives(t.Context(), "20", Options{}))
	last := f.values()
	f.isGreen(last)
	if frozen := strings.Split(got, " ")[1]; last != "20 20 20" && last != "20 "+frozen+" 20" {
		t.Errorf("published again: nodes have %s, had %s", last, got)
	}
}

// isGreen wants all that is published to be as nodes take it.
func (f *fleet) isGreen(values string) {
	f.t.Helper()
	report, err := verify.Fleet(f.t.Context(), &f.Reader, f.policy, nil, false)
	if err != nil || !report.OK() {
		f.t.Errorf("nodes have %s: %+v, %v", values, report, err)
	}
}

func hintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}
