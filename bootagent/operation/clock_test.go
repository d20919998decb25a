// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

type unitState struct {
	state string
	err   error
}

func (u unitState) State(context.Context, string) (string, time.Time, error) {
	return u.state, at("2026-11-21T09:00Z"), u.err
}

// TestWhyNoClock: what waits for a window says what sets no clock.
func TestWhyNoClock(t *testing.T) {
	b := newBench(t)
	b.unset, b.Root, b.Servers = true, t.TempDir(), []string{"a.example.org", "192.0.2.1"}
	m := &spec.Maintenance{Windows: map[string]spec.Window{"w": {}}, Operations: []spec.Operation{{ID: "sha256:" + strings.Repeat("1", 64), Name: "x", Type: spec.OneShot, Windows: []string{"w"}, Action: spec.Action{Exec: spec.Command{Argv: []string{"/bin/true"}, Timeout: 60}}}}}
	want := func(text string) {
		t.Helper()
		if got := b.View(m); len(got) != 1 || got[0].For != spec.ForClock || got[0].Detail != "the clock is not synchronised: "+text {
			t.Errorf("%+v, want %q", got, text)
		}
	}
	want("this system has none of systemd-timesyncd, chrony, ntpsec")
	dir := filepath.Join(b.Root, "usr/lib/systemd/system")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "chrony.service"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	want("chrony.service cannot be asked without systemd")
	b.Units = unitState{err: errors.New("look at chrony.service: gone")}
	want("look at chrony.service: gone")
	b.Units = unitState{state: "inactive"}
	want("chrony.service is not active")
	b.Units = unitState{state: "active"}
	want("no time that chrony.service accepts came from a.example.org, 192.0.2.1 since it started, at 2026-11-21 09:00 UTC")
	b.Servers = nil
	want("no time that chrony.service accepts came from its servers since it started, at 2026-11-21 09:00 UTC")
}
