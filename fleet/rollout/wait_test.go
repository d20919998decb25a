// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/test/registrytest"
)

// A wave begins when its overlays are in the registry, however long its publisher waited for
// others and for the registry; what decides is asked behind the first of that.
func TestAWaveBeginsBehindEveryWait(t *testing.T) {
	l := newLine(t, registrytest.WithReferrers(t))
	f := newFleet(t, l.at+"/metal", 4, "{waves: [{count: 4}], soak: 10s, deadline: 60s, silence: 10m}")
	_, err := f.start("2")
	must(t, err)
	var mu sync.Mutex
	var reserved, placed, asked time.Time
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return f.now
	}
	l.meets = func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method != http.MethodPut:
		case strings.Contains(r.URL.Path, "/manifests/intent-") && reserved.IsZero(): // as behind one that died
			f.now = f.now.Add(3 * time.Minute)
			reserved = f.now
		case strings.Contains(r.URL.Path, "/"+oci.RepoNode+"/manifests/n0"):
			f.now = f.now.Add(2 * time.Minute)
			placed = f.now
		}
	}
	d := f.driver()
	d.Now, d.Reports = clock, func(context.Context, report.Asked) (map[string]report.Standing, error) {
		asked = clock()
		return f.reports(), nil
	}
	moved, what, err := d.Step(t.Context())
	if err != nil || !moved || what.Act != Begin {
		t.Fatalf("moved %v, %+v, %v", moved, what, err)
	}
	l.meets = nil
	if asked.Before(reserved) {
		t.Errorf("it decided on reports of %s, and waited until %s", asked, reserved)
	}
	if begun := time.Unix(f.row().Waves[0].Begun, 0); begun.Before(placed) {
		t.Errorf("it began at %s, and nodes had it at %s", begun, placed)
	}
	if _, what, err = f.driver().Step(t.Context()); err != nil || what.Act != Wait {
		t.Errorf("at once: %+v, %v", what, err)
	}
	f.tick(30 * time.Second)
	must(t, f.finish())
	f.want(map[string]int{"2": 4})
}
