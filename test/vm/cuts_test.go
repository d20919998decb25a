// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/require"
)

// cuts is how often the power goes.
const cuts = 50

// TestLongPowerCuts takes the power from a node at random moments of its boot and
// of its first minute, while new generations and layers are published. Whatever a
// cut left must boot: in the end the node runs the newest generation, and nothing
// half made is on its disk.
func TestLongPowerCuts(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	o := f.byHand(t, f.withDisk(t))
	moments := []string{"caisson: state disk", "caisson: address", "caisson: overlay of node", "caisson: entering the layer", "login:"}
	panics := [2]string{"    kernel.panic: 30\n", "    kernel.panic: 40\n"}
	layers := [2]string{"      - name: tree\n", "      - name: tree\n      - name: bc\n"}
	change := func(between *[2]string) {
		f.edit(t, between[0], between[1])
		between[0], between[1] = between[1], between[0]
	}
	for n := range cuts {
		switch n % 5 {
		case 2:
			change(&panics)
			f.publish(t)
		case 4:
			change(&layers)
			f.build(t)
			f.publish(t)
		}
		m := f.start(t, o)
		moment, after := moments[rand.N(len(moments))], rand.N(10*time.Second)
		waitFor(t, m, 0, moment, "login:") // a generation that was cut three times is not entered again
		time.Sleep(after)
		m.PowerCut()
		t.Logf("cut %d: %v after %q", n+1, after.Round(time.Millisecond), moment)
	}

	change(&panics)
	f.publish(t)
	m := f.start(t, o)
	s := f.login(t, m)
	if st := status(t, s); st.Health != "ok" || st.Sync != "current" || st.Source != "fetched" {
		t.Errorf("after %d cuts: %+v", cuts, st)
	}
	if got := run(t, s, "systemctl --failed --no-legend --plain"); got != "" {
		t.Errorf("failed units: %s", got)
	}
	if left := run(t, s, "sudo find /var/lib/caisson -name '*.partial' -o -name '*.damaged' -o -name '.*.json.*'"); left != "" {
		t.Errorf("left on the state disk:\n%s", left)
	}
	_, _ = s.Run(t.Context(), "sudo systemctl poweroff") // the connection may end before the answer
	if err := m.Off(t.Context()); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(f.Dir, "state.ext4")
	sh(t, `dd if="$1" of="$2" bs=1M skip=1 conv=sparse status=none; e2fsck -fp "$2" || [ $? -eq 1 ]`, o.Disk, part) // 1: counts were stale
}
