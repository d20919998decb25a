// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestThePageStaysLive opens the page from another site's, takes the service away from
// it and gives it back, and ends its session.
func TestThePageStaysLive(t *testing.T) {
	require.Slow(t)
	ctx := browser(t)
	s := newSite(t, rowsOf("n1", "n2"), true)
	key, seq := newKey(t), uint64(0)
	report := func(state string) {
		t.Helper()
		seq++
		if status, text := s.ask("POST", "/v1/report", sealed(t, key, "n1", seq, func(r *spec.Report) { r.Axes.Health.State = state }), "Authorization", s.bearer(people.Reporter)); status != 204 {
			t.Fatal(status, text)
		}
	}
	report("broken")
	// A proxy that can lose the service.
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	var down atomic.Bool
	var refused, streams atomic.Int64
	forward := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host }}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		stream := req.URL.Path == "/v1/events"
		switch {
		case down.Load():
			if stream {
				refused.Add(1)
			}
			http.Error(w, "nobody there", http.StatusBadGateway)
			return
		case stream:
			streams.Add(1)
		}
		forward.ServeHTTP(w, req)
	}))
	t.Cleanup(func() { // the page, which is still open, listens: Close would wait for it for ever
		down.Store(true)
		proxy.CloseClientConnections()
		proxy.Close()
	})
	until := func(what string, ok func() bool) {
		t.Helper()
		for !ok() {
			if err := chromedp.Run(ctx, chromedp.Sleep(50_000_000)); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	see := func(what, script string) {
		t.Helper()
		if err := chromedp.Run(ctx, chromedp.Poll(script, nil, chromedp.WithPollingTimeout(0))); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	// Somebody is logged in, and follows a link in a chat: the cookie is not sent at once.
	var where string
	if err := chromedp.Run(ctx, chromedp.Navigate(proxy.URL), chromedp.WaitVisible("#token"), chromedp.SendKeys("#token", s.tokens[people.Reader]+"\n"), chromedp.WaitVisible(".tiles"),
		chromedp.Navigate(`data:text/html,<a id="link" href="`+proxy.URL+`/nodes?condition=broken">look</a>`), chromedp.Click("#link"), chromedp.WaitVisible("table.nodes"), chromedp.Location(&where)); err != nil {
		t.Fatal(err)
	}
	if where != proxy.URL+"/nodes?condition=broken" {
		t.Errorf("a link from elsewhere leads to %s", where)
	}
	// What somebody has selected stays until he lets it go.
	if err := chromedp.Run(ctx, chromedp.Navigate(proxy.URL+"/nodes/n1"), chromedp.WaitVisible(".acts"),
		chromedp.Evaluate(`window.heard = 0; window.events = new EventSource("/v1/events"); events.addEventListener("change", () => heard++); window.kept = document.querySelector(".acts code"); getSelection().selectAllChildren(kept)`, nil)); err != nil {
		t.Fatal(err)
	}
	see("that it listens", `events.readyState === EventSource.OPEN`)
	report("ok")
	see("a first change", `heard >= 1`)
	report("degraded")
	see("a second change", `heard >= 2`)
	see("what is selected", `kept.isConnected`)
	if err := chromedp.Run(ctx, chromedp.Evaluate(`getSelection().removeAllRanges()`, nil)); err != nil {
		t.Fatal(err)
	}
	see("it is live again", `!kept.isConnected && document.querySelector(".badge.degraded") !== null`)
	// The service is gone, as for a new release, and a proxy says so: the browser gives up.
	down.Store(true)
	proxy.CloseClientConnections()
	see("that nothing is live is said", `!document.getElementById("lost").hidden`)
	until("the browser is refused", func() bool { return refused.Load() > 0 })
	before := streams.Load()
	down.Store(false)
	until("the page listens again", func() bool { return streams.Load() > before })
	see("it is live", `document.getElementById("lost").hidden`)
	// Sessions end with the service: the page asks for the token, and goes on where it was.
	s.sessionsEnd()
	report("broken")
	if err := chromedp.Run(ctx, chromedp.WaitVisible("#token"), chromedp.SendKeys("#token", s.tokens[people.Reader]+"\n"), chromedp.WaitVisible(".badge.broken"), chromedp.Location(&where)); err != nil {
		t.Fatal(err)
	}
	if where != proxy.URL+"/nodes/n1" {
		t.Errorf("after logging in again: %s", where)
	}
}
