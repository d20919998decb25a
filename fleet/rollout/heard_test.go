// SPDX-License-Identifier: Apache-2.0

package rollout

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
func said(t *testing.T, cursor string, lines ...view.Reported) string {
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

func of(node, overlay string) view.Reported {
	return view.Reported{Node: node, Received: time.Unix(1_900_000_000, 0), Overlay: overlay, Axes: spec.Axes{Health: spec.Axis{State: "ok"}}}
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
		all, err := ReadReports(strings.NewReader(answer), asked, nil, time.Unix(1_900_000_100, 0))
		must(t, err)
		if got := fmt.Sprintf("%d a=%s b=%s", len(all), all["a"].Overlay, all["b"].Overlay); got != want {
			t.Errorf("heard %s, not %s", got, want)
		}
	}
	look("", said(t, "1.0", of("a", "x"), of("b", "x"), of("stranger", "x")), "2 a=x b=x")
	look("1.0", said(t, "2.0", of("a", "y")), "2 a=y b=x")
	look("2.0", said(t, "2.0"), "2 a=y b=x")
	if _, err := ReadReports(strings.NewReader(strings.Repeat(said(t, "", of("a", "z")), 2000)), asked, nil, time.Now()); err == nil {
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
	look := func(answer string) Report {
		t.Helper()
		asked.Query(by)
		all, err := ReadReports(strings.NewReader(answer), asked, by, now)
		must(t, err)
		return all["a"]
	}
	if r := look(said(t, "1.0", view.Reported{Node: "a", Received: now, Signed: signed(t, first, "metal", "a", 1, spec.KeyBoot, "ok", now)})); r.Garbled != "" {
		t.Fatalf("%+v", r)
	}
	if look(said(t, "1.0")); opened != 1 {
		t.Errorf("a report is opened %d times", opened)
	}
	other := view.Reported{Node: "a", Received: now, Signed: signed(t, second, "metal", "a", 1, spec.KeyBoot, "ok", now)}
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
