// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// That keys were left out is said once an overlay.
func TestKeepSaysWhatWasLeftOut(t *testing.T) {
	m := newMachine(t)
	m.publishItems(1, layerNamed("a"), spec.Items{})
	m.boot()
	m.apply()
	n := m.open()
	defer n.Close() // the test is over
	st, err := n.look.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	n.session.Options.Say = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	for _, overlay := range []string{"sha256:1", "sha256:1", "sha256:2"} {
		st.Overlay, st.LeftOut = overlay, []string{"items.sysctl[].onlyIf"}
		if err := n.look.Keep(st); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(strings.Join(said, "\n"), "generation 1: left out: items.sysctl[].onlyIf (of a later release)"); got != 2 {
		t.Errorf("said %d times, want once an overlay: %q", got, said)
	}
}
