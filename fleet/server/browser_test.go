// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// browser is a tab of a real one. Whatever a page complains of is an error.
func browser(t *testing.T) context.Context {
	t.Helper()
	require.Tool(t, "chromium")
	o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.WSURLReadTimeout(5*time.Minute), chromedp.WindowSize(1280, 900),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"), chromedp.Flag("disable-dev-shm-usage", true))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), o...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	ctx, expire := context.WithTimeout(ctx, 10*time.Minute)
	t.Cleanup(expire)
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("a script failed: %v", e.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError {
				t.Errorf("the console says: %v", e.Args)
			}
		}
	})
	return ctx
}

// keep writes a picture of the page where CAISSON_SCREENSHOTS names a directory.
func keep(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	var picture []byte
	if err := chromedp.Run(ctx, chromedp.FullScreenshot(&picture, 100)); err != nil {
		t.Fatal(err)
	}
	if len(picture) < 5000 {
		t.Errorf("the picture of %s has %d bytes", name, len(picture))
	}
	if dir := os.Getenv("CAISSON_SCREENSHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// arrive waits until the address has a text in it. A script would end with the page that
// it was started in.
func arrive(at string) chromedp.ActionFunc {
	return func(ctx context.Context) error {
		for where := ""; !strings.Contains(where, at); time.Sleep(20 * time.Millisecond) {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%q is not reached: %w", at, err)
			}
			if err := chromedp.Location(&where).Do(ctx); err != nil {
				where = "" // between two pages
			}
		}
		return nil
	}
}

// onCall is a fleet of 60 nodes in some trouble. What it returns last sends a report of one of them.
func onCall(t *testing.T) (s *site, names []string, send func(i int, seq uint64, change func(*spec.Report))) {
	t.Helper()
	for i := range 60 {
		names = append(names, fmt.Sprintf("rack%02d-n%d", i/8+1, i%8+1))
	}
	names[3] = (names[3] + strings.Repeat("-of-a-long-name", 5))[:63]
	rows := rowsOf(names...)
	held := rows[names[9]]
	held.Holds = []spec.Hold{{Kind: spec.HoldFreeze, Reason: "a disk is on its way", Author: "eve", Since: time.Now().Unix()}}
	rows[names[9]] = held
	plan := &spec.RolloutPlan{Name: "october-with-a-long-name", Waves: []spec.Wave{{Name: "canary", Nodes: map[string]string{names[0]: "x"}}, {Name: "2-rack01", Nodes: map[string]string{names[1]: "x"}}}}
	for i := range 15 { // which wait, as the second one does
		plan.Waves = append(plan.Waves, spec.Wave{Name: fmt.Sprintf("%d-more", i+3), Nodes: map[string]string{names[i+2]: "x"}})
	}
	s = newSiteWith(t, rows, true, rollout.StateOf(plan, spec.Rollout{Phase: spec.RolloutRunning, Since: time.Now().Unix(), Waves: []spec.RolloutWave{{Begun: time.Now().Unix()}}}))
	authored := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal}\nnodes:\n"
	for i, name := range names {
		authored += fmt.Sprintf("- {name: %s, labels: {rack: r%d}}\n", name, i/8+1)
	}
	s.server.o.Layers = differing{strings.Replace(layer, "aa", "bb", 1): {Kernel: &release.Change{From: "6.12.1-amd64", To: "6.1.0-amd64"},
		Packages: []release.Change{{Name: "linux-image-6.12.1-amd64-unsigned", From: "6.12.1-1+a-very-long-version~bpo12+1"}, {Name: "openssl", From: "3.5.1-1", To: "3.0.15-1~deb12u1"}}}}
	by := map[string]*spec.Maintenance{}
	at := time.Now().UTC().Truncate(24 * time.Hour).Add(22 * time.Hour)
	for _, row := range rows {
		by[row.Overlay] = &spec.Maintenance{Horizon: at.AddDate(0, 0, 5), Windows: map[string]spec.Window{"night": opening(4, at, at.AddDate(0, 0, 1), at.AddDate(0, 0, 2)), "weekend": opening(30, at.AddDate(0, 0, 3))}}
	}
	s.server.o.Sent = windowed{sentAll{"web": strings.Repeat("2", 40)}, by}
	s.knows(authored + "---\napiVersion: caisson.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: first}\nspec: {match: {hosts: [\"*-n1\"]}}\n")
	send = func(i int, seq uint64, change func(*spec.Report)) {
		t.Helper()
		if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), names[i], seq, change), "Authorization", s.bearer(people.Reporter)); status != 204 {
			t.Fatal(status, text)
		}
	}
	at = time.Now().Add(-40 * time.Minute)
	for i := range 55 {
		send(i, 1, func(r *spec.Report) {
			if r.Services = map[string]string{"web": strings.Repeat("2", 40)}; i < 5 {
				r.Services["web"] = strings.Repeat("1", 40)
			}
			switch {
			case i < 4:
				r.Boot = []spec.Step{{Name: "network", Start: 1800, Took: 2100, Result: spec.StepOK}, {Name: "layer", Start: 3900, Took: 9400, Result: spec.StepOK, Bytes: &spec.Bytes{Fetched: 812_000_000}}, {Name: "items", Start: 13_300, Took: 120_000, Result: "sysctl: no such parameter"}}
				r.Axes.Health = spec.Axis{State: "degraded", Detail: "mounts /srv/data: wrong fs type, bad option, bad superblock on /dev/sdb1", Since: at}
				r.Items = append(r.Items, spec.ItemStatus{Name: "mounts", State: spec.ItemDegraded, Error: "mount /srv/data: exit status 32"})
				r.Drift = []spec.Drift{{Item: "mounts", Key: "/srv/data", From: "", To: "/dev/sdb1 ext4", Action: spec.ActionRefuse, Reason: "wrong fs type, bad option, bad superblock on /dev/sdb1"}}
				for n := range 30 * max(0, i-2) { // of the one with the long name
					r.Drift = append(r.Drift, spec.Drift{Item: "files", Key: fmt.Sprintf("/etc/app.d/%d.conf", n), From: other(n+1) + " 0644", To: other(n) + " 0644", Action: spec.ActionChange})
				}
			case i == 5:
				r.Axes.Sync = spec.Axis{State: "refused:expired", Detail: "the overlay expired at 2026-11-20T00:00:00Z", Since: at}
			case i < 8:
				r.Overlay, r.Generation, r.Layer, r.LayerVersion = other(0), 6, strings.Replace(layer, "aa", "bb", 1), "12.0"
				r.Axes.Activity = spec.Axis{State: "waiting:reboot", Detail: "window night opens at 2026-11-22 01:00 UTC"}
			}
		})
	}
	send(0, 1, nil) // another key
	if status, text := s.ask("POST", "/v1/hint", hintOf(t, names[20], "no answer from 192.0.2.7 within 3m: the registry's certificate is of another name"), "Authorization", s.bearer(people.Reporter)); status != 204 {
		t.Fatal(status, text)
	}
	if err := s.hub.Act(t.Context(), "test-user2 at id.example.org", audit.Login, "id2", "ops, everybody"); err != nil {
		t.Fatal(err)
	}
	s.server.o.Past = kept{generations: 45}
	s.server.o.Unknown = func() ([]unknown.Machine, error) { return newRack(3), nil }
	return s, names, send
}

// TestThePage is a night on call: what is wrong, why, one node, its other key, and a
// report that arrives meanwhile.
func TestThePage(t *testing.T) {
	require.Slow(t)
	ctx := browser(t)
	s, names, send := onCall(t)
	open := func(path string) chromedp.Action { return chromedp.Navigate(s.url + path) }
	var title, text, where string
	if err := chromedp.Run(ctx,
		open("/nodes?condition=degraded"), // a deep link, from an alert
		chromedp.WaitVisible("#token"), chromedp.SendKeys("#token", s.tokens[people.Reader]+"\n"),
		chromedp.WaitVisible("table.nodes"), chromedp.Location(&where), chromedp.Text("h1", &text),
	); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(where, "/nodes?condition=degraded") || text != "3 nodes" { // and one with another key
		t.Errorf("after logging in: %s, %q", where, text)
	}
	keep(t, ctx, "nodes")
	if err := chromedp.Run(ctx, open("/"), chromedp.WaitVisible(".tiles"), chromedp.Title(&title), chromedp.Text("h1", &text)); err != nil {
		t.Fatal(err)
	}
	if title != "Overview · metal" || text != "5 of 60 nodes need a look" {
		t.Errorf("%q: %q", title, text)
	}
	keep(t, ctx, "overview")
	// Beside each time in UTC stands that of a browser with another clock.
	var times, without, clocks int
	for path, least := range map[string]int{"/nodes/" + names[0]: 0, "/windows": 6} {
		if err := chromedp.Run(ctx, emulation.SetTimezoneOverride("Asia/Kolkata"), open(path), chromedp.WaitVisible("main"),
			chromedp.Evaluate(`window.times = [...document.querySelectorAll("time[datetime]")]; times.length`, &times),
			chromedp.Evaluate(`times.filter(t => !t.title.endsWith(" here") && !t.textContent.endsWith(" here)")).length`, &without),
			chromedp.Evaluate(`times.filter(t => /^\d\d:\d\d \(\w+.* here\)$/.test(t.textContent)).length`, &clocks)); err != nil || times == 0 || without > 0 || clocks < least {
			t.Errorf("%s: %d of %d times have UTC alone, and %d clocks another one: %v", path, without, times, clocks, err)
		}
		keep(t, ctx, "here"+strings.ReplaceAll(path, "/", "-"))
	}
	if err := chromedp.Run(ctx, emulation.SetTimezoneOverride(""), open("/"), chromedp.WaitVisible(".tiles")); err != nil {
		t.Fatal(err)
	}
	// A report arrives: the page changes by itself.
	send(58, 1, func(r *spec.Report) { r.Axes.Health = spec.Axis{State: "broken", Detail: "out of memory"} })
	if err := chromedp.Run(ctx, chromedp.WaitVisible(".tile.broken"), chromedp.Text("h1", &text)); err != nil {
		t.Fatalf("the page does not change: %v", err)
	}
	if text != "6 of 60 nodes need a look" {
		t.Errorf("after a report: %q", text)
	}
	// Keyboard: / leads to the search, Enter searches.
	if err := chromedp.Run(ctx, chromedp.KeyEvent("/"), chromedp.WaitVisible("input[type=search]"), chromedp.Poll(`document.activeElement.name === "q"`, nil, chromedp.WithPollingTimeout(0)),
		chromedp.KeyEvent("superblock\r"), arrive("q=superblock"), chromedp.WaitVisible("table.nodes"), chromedp.Text("h1", &text)); err != nil {
		t.Fatal(err)
	}
	if text != "3 nodes" {
		t.Errorf("search by keyboard: %q", text)
	}
	// The form: a label is typed, a set is chosen, and the address says both.
	if err := chromedp.Run(ctx, open("/nodes"), chromedp.WaitVisible("table.nodes"), chromedp.SendKeys("input[name=label]", "rack=r1"), chromedp.SetValue("select[name=set]", "first"),
		chromedp.Submit("form.filter"), arrive("set=first"), chromedp.WaitVisible("table.nodes"), chromedp.Text("h1", &text), chromedp.Location(&where)); err != nil {
		t.Fatal(err)
	}
	if text != "1 node" || !strings.Contains(where, "label=rack%3Dr1") {
		t.Errorf("by label and set: %q at %s", text, where)
	}
	keep(t, ctx, "labels")
	// From a service to the nodes that have its old commit.
	if err := chromedp.Run(ctx, open("/services"), chromedp.WaitVisible("table.wide"), chromedp.ActionFunc(func(ctx context.Context) error { keep(t, ctx, "services"); return nil }),
		chromedp.Click(`a[href$="commit=1111111111111111111111111111111111111111"]`), arrive("/nodes?service=web"), chromedp.WaitVisible("table.nodes"), chromedp.Text("h1", &text)); err != nil {
		t.Fatal(err)
	}
	if text != "5 nodes" {
		t.Errorf("nodes of an old commit: %q", text)
	}
	if err := chromedp.Run(ctx, open("/layers"), chromedp.WaitVisible("section table"), chromedp.Text("section table", &text)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "3.0.15-1~deb12u1") {
		t.Errorf("what a layer differs in: %s", text)
	}
	keep(t, ctx, "layers")
	var acts, drift string
	if err := chromedp.Run(ctx, open("/nodes/"+names[1]), chromedp.WaitVisible(".acts"), chromedp.Text(".acts", &acts), chromedp.Text("main", &drift)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(acts, "caisson freeze registry.example/metal --site site.yaml --node "+names[1]) || !strings.Contains(drift, "bad superblock on /dev/sdb1") {
		t.Errorf("the node's page says\n%s", drift)
	}
	var bars string // each has its place and a width, by the policy for styles, too
	if err := chromedp.Run(ctx, chromedp.Evaluate(`[...document.querySelectorAll(".steps rect")].map(r => r.getBoundingClientRect()).map((b, i, all) => b.width > 0 && b.height > 0 && (i == 0 || b.left > all[i-1].left)).join()`, &bars)); err != nil {
		t.Fatal(err)
	}
	if bars != "true,true,true" || !strings.Contains(drift, "812.0 MB fetched") || !strings.Contains(drift, "9.4 s") {
		t.Errorf("the boot's chart: %s\n%s", bars, drift)
	}
	keep(t, ctx, "node")
	if err := chromedp.Run(ctx, open("/nodes/"+names[0]), chromedp.WaitVisible(".notice"), chromedp.Text(".acts", &acts)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(acts, "caisson fleet accept "+names[0]) {
		t.Errorf("of another key it says\n%s", acts)
	}
	// A narrow window and the dark: nothing is wider than the window.
	var wide bool
	for _, path := range []string{"/", "/nodes", "/nodes/" + names[0], "/layers", "/services", "/slots", "/rollouts"} {
		if err := chromedp.Run(ctx, chromedp.EmulateViewport(380, 800), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}),
			open(path), chromedp.WaitVisible("main"), chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth`, &wide)); err != nil {
			t.Fatal(err)
		}
		if wide {
			t.Errorf("%s is wider than a narrow window", path)
		}
		keep(t, ctx, "narrow-"+strings.NewReplacer("/", "-").Replace(strings.Trim(path, "/")+"-dark"))
	}
}
