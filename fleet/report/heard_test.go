// SPDX-License-Identifier: Apache-2.0

package report

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// said is an answer of a service: what nodes report, and a cursor where it knows them.
func said(t *testing.T, cursor string, lines ...Reported) string {
	t.Helper()
	var text strings.Builder
	for _, one := range lines {
		line, err := json.Marshal(one)
		must(t, err)
		text.Write(append(line, '\n'))
	}
	if cursor != "" {
		fmt.Fprintf(&text, "{\"cursor\":%q}\n", cursor)
	}
	return text.String()
}

func of(node, overlay string) Reported {
	return Reported{Node: node, Received: time.Unix(1_900_000_000, 0), Overlay: overlay, Axes: spec.Axes{Health: spec.Axis{State: "ok"}}}
}

// TestALookHearsWhatIsNew: a look goes on where the last one ended; what was said before stays, as
// long as the node is published and the question is the same. A service without cursors says all.
func TestALookHearsWhatIsNew(t *testing.T) {
	asked := among("a", "b")
	asked.All, asked.Heard = true, &Heard{}
	look := func(asks, answer, want string) {
		t.Helper()
		q, err := url.ParseQuery(asked.Query(nil))
		must(t, err)
		if !q.Has("after") || q.Get("after") != asks {
			t.Errorf("it asks for what came after %q, not %q", q["after"], asks)
		}
		all, err := Hear(strings.NewReader(answer), asked, nil, time.Unix(1_900_000_100, 0))
		must(t, err)
		if got := fmt.Sprintf("%d a=%s b=%s", len(all), all["a"].Overlay, all["b"].Overlay); got != want {
			t.Errorf("heard %s, not %s", got, want)
		}
	}
	look("", said(t, "1.0", of("a", "x"), of("b", "x"), of("stranger", "x")), "2 a=x b=x")
	look("1.0", said(t, "2.0", of("a", "y")), "2 a=y b=x")
	look("2.0", said(t, "2.0"), "2 a=y b=x")
	if _, err := Hear(strings.NewReader(strings.Repeat(said(t, "", of("a", "z")), 2000)), asked, nil, time.Now()); err == nil {
		t.Error("a service says as much as it likes")
	}
	look("2.0", said(t, "3.0"), "2 a=y b=x") // of an answer that ended nothing is kept
	asked.Published = map[string]bool{"b": true}
	look("3.0", said(t, "4.0"), "1 a= b=x")
	asked.Published = among("a", "b").Published
	look("4.0", said(t, strings.Repeat("x", 101), of("a", "w")), "1 a=w b=") // no cursor that is sent back
	look("", said(t, "5.0", of("a", "w"), of("b", "w")), "2 a=w b=w")
	asked.All, asked.Plan, asked.Waves = false, "p", 1
	look("", said(t, "6.0", of("a", "v")), "1 a=v b=")
	asked.Waves = 2
	look("", said(t, "", of("b", "v")), "1 a= b=v")
	look("", said(t, "", of("a", "u")), "1 a=u b=")
}

// TestWhatDidNotCountMayByNow: a report by another key counts when the first one is silent, though the
// service does not say it again; and what was verified once is not verified at each look.
func TestWhatDidNotCountMayByNow(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	first, second := reporterKey(t), reporterKey(t)
	by, err := OpenReporters(filepath.Join(t.TempDir(), "reporters"), true)
	must(t, err)
	opened, open := 0, by.open
	by.open = func(node string, raw []byte, at time.Time) (*spec.Report, error) {
		opened++
		return open(node, raw, at)
	}
	asked := among("a")
	asked.All, asked.Heard = true, &Heard{}
	look := func(answer string) Standing {
		t.Helper()
		asked.Query(by)
		all, err := Hear(strings.NewReader(answer), asked, by, now)
		must(t, err)
		return all["a"]
	}
	if r := look(said(t, "1.0", Reported{Node: "a", Received: now, Signed: signed(t, first, "metal", "a", 1, spec.KeyBoot, "ok", now)})); r.Garbled != "" {
		t.Fatalf("%+v", r)
	}
	if look(said(t, "1.0")); opened != 1 {
		t.Errorf("a report is opened %d times", opened)
	}
	other := Reported{Node: "a", Received: now, Signed: signed(t, second, "metal", "a", 1, spec.KeyBoot, "ok", now)}
	if r := look(said(t, "2.0", other)); r.Garbled == "" {
		t.Errorf("another key counts while the first one reports: %+v", r)
	}
	now = now.Add(24 * time.Hour)
	if r := look(said(t, "2.0")); r.Garbled != "" {
		t.Errorf("the first key is silent, and the other does not count: %+v", r)
	}
}

func reporterKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := sign.Generate()
	must(t, err)
	return key
}

// What a service says is bounded.
func TestHear(t *testing.T) {
	line := func(node, grade, health string) string {
		return `{"node":"` + node + `","received":"2026-11-21T12:00:00Z","grade":"` + grade + `","overlay":"o","axes":{"sync":{"state":"current","since":"2026-11-21T11:00:00Z"},"activity":{"state":"waiting:reboot","detail":"window night"},"health":{"state":"` + health + `","since":"2026-11-21T13:00:00Z"}}}` + "\n"
	}
	got, err := Hear(strings.NewReader(line("a", "pinned", "ok")+line("c", "boot", "degraded")+line("stranger", "boot", "ok")), among("a", "c"), nil, time.Now())
	must(t, err)
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	if len(got) != 2 || got["a"] != (Standing{At: noon, Overlay: "o", Well: noon, Pinned: true, Waiting: "reboot: window night"}) || got["c"].Trouble != "degraded" || got["c"].Pinned {
		t.Errorf("got %+v", got)
	}
	if r := StandingOf(Reported{Axes: spec.Axes{Sync: spec.Axis{State: "refused:epoch", Detail: "7"}}}); r.Refused != "epoch: 7" {
		t.Errorf("a refusal is %+v", r)
	}
	if r := StandingOf(Reported{Overlay: "o", Staged: "o"}); r.Overlay != "" {
		t.Errorf("its layer waits for a reboot, and it has arrived: %+v", r)
	}
	if r := StandingOf(Reported{Axes: spec.Axes{Health: spec.Axis{State: "degraded", Detail: strings.Repeat("x\n", 9999)}}}); len(r.Trouble) > maxBrief+3 || strings.Contains(r.Trouble, "\n") {
		t.Errorf("the index would keep %d bytes", len(r.Trouble))
	}
}

// A line that cannot be read is of a node, which is named, and not the end of all.
func TestALineThatCannotBeRead(t *testing.T) {
	well := `{"node":"b","received":"2026-11-21T12:00:00Z","overlay":"new","axes":{"health":{"state":"ok"}}}`
	for _, bad := range []string{`{"node":"a","axes":[]}`, `{"node":"a","received":"0000-00-00"}`, `{"node":"a","overlay":"` + strings.Repeat("x", 3*maxLine) + `"}`, `{"node":"a" null`} {
		for _, text := range []string{bad + "\n" + well + "\n", well + "\n" + bad, "{\n\n" + bad + "\n[]\n" + well + "\n"} {
			got, err := Hear(strings.NewReader(text), among("a", "b"), nil, time.Now())
			must(t, err)
			if len(got) != 2 || got["a"].Garbled == "" || len(got["a"].Garbled) > maxBrief+3 || got["b"].Overlay != "new" {
				t.Errorf("%.40q: %+v", text, got)
			}
		}
	}
}

// How long a node is well is a difference of two times of its clock, so that no clock that
// is wrong makes it well sooner or later.
func TestAClockThatIsWrong(t *testing.T) {
	received := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, ahead := range []time.Duration{0, -24 * time.Hour, 24 * time.Hour, -20 * 365 * 24 * time.Hour} {
		for of, want := range map[time.Duration]time.Duration{0: 0, 5 * time.Minute: 5 * time.Minute, time.Hour: time.Hour, -time.Hour: 0} { // or was set back meanwhile
			since := received.Add(ahead - of)
			r := &spec.Report{Time: received.Add(ahead), Overlay: "o", Axes: spec.Axes{Health: spec.Axis{State: "ok", Since: since.Add(-time.Hour)}, Sync: spec.Axis{State: "current", Since: since}}}
			Bound(r, received)
			n := view.Node{Received: received, Report: view.NewBrief(r)}
			reported, _ := Last(&n)
			if got := StandingOf(reported); !got.Well.Equal(received.Add(-want)) {
				t.Errorf("a clock that is %s ahead: well since %s, want %s", ahead, got.Well, received.Add(-want))
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
