// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestConsoleIsNotSteered: what a registry says can neither clear the screen nor
// forge a record.
func TestConsoleIsNotSteered(t *testing.T) {
	var out strings.Builder
	forged := "\x1b[2J\rgone\n<0>caisson: all is well\u202e"
	Console{&out}.Say("unreachable: %v, tag %s", errors.Join(errors.New(forged), errors.New("second")), fmt.Sprint(forged))
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "<3>caisson: ") || strings.HasPrefix(line, "<3>caisson: <0>") || strings.ContainsAny(line, "\x1b\r\u202e") {
			t.Errorf("forged: %q", line)
		}
	}
	if !strings.Contains(out.String(), "second") {
		t.Errorf("lost: %q", out.String())
	}
}
