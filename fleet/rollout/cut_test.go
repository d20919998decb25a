// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/require"
	"github.com/caisson-os/caisson/test/registrytest"
)

// A run that is killed anywhere in a wave goes on elsewhere: every node ends on what
// the plan says, none takes anything twice, and nothing that is published is refused.
func TestLongKilledAnywhere(t *testing.T) {
	require.Long(t)
	killed(t, 3)
}

func TestKilledSomewhere(t *testing.T) { killed(t, 16) }

// killed cuts a step after 8 requests, and then after so many more each time.
func killed(t *testing.T, more int64) {
	server := registrytest.Distribution(t)
	to, err := url.Parse("http://" + server)
	must(t, err)
	var left atomic.Int64 // requests until the line is cut
	left.Store(1 << 40)
	proxy := httputil.NewSingleHostReverseProxy(to)
	var ahead atomic.Int64 // of the fleet's clock: a publisher compares its own with the registry's
	proxy.ModifyResponse = func(r *http.Response) error {
		r.Header.Set("Date", time.Now().Add(time.Duration(ahead.Load())).UTC().Format(http.TimeFormat))
		return nil
	}
	line := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if left.Add(-1) < 0 {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(line.Close)
	f := newFleet(t, line.Listener.Addr().String()+"/metal", 4, "{waves: [{count: 2}], soak: 1m, deadline: 30m, silence: 30m}")
	cuts, value := 0, 1
	for at := int64(8); ; at += more {
		ahead.Store(int64(time.Until(f.now)))
		value++
		taken := f.nodes["n00003"].taken
		_, err := f.start(string(rune('0' + value%10)))
		must(t, err)
		left.Store(at)
		_, _, err = f.driver().Step(t.Context())
		left.Store(1 << 40)
		if err == nil { // the whole step has fewer requests
			must(t, f.finish())
			break
		}
		cuts++
		f.now = f.now.Add(6 * time.Hour) // until the reservation of the dead is not honoured any more
		ahead.Store(int64(time.Until(f.now)))
		f.tick(0)
		must(t, f.finish())
		if n := f.nodes["n00003"].taken - taken; n != 1 {
			t.Fatalf("cut at request %d: node n00003 took something %d times", at, n)
		}
		want := map[string]int{f.value: 4}
		f.want(want)
		if t.Failed() {
			t.Fatalf("cut at request %d", at)
		}
	}
	if cuts < 2 {
		t.Errorf("%d cuts: the step is shorter than it was", cuts)
	}
	t.Logf("%d cuts", cuts)
}

// finish runs to the good end.
func (f *fleet) finish() error {
	if err := f.run(); !Ended(err) {
		return err
	}
	return nil
}
