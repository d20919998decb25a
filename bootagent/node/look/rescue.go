// SPDX-License-Identifier: Apache-2.0

package look

import (
	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/spec"
)

// rescue is who is let in, with the code where root is shown it; nil where no rescue key counts
// and nobody was let in.
func (l *Look) rescue(code bool) (*spec.RescueStatus, error) {
	b, err := rescue.Read(l.Options.Root, l.Scopes.Kernel)
	if err != nil {
		return nil, err
	}
	counts := false
	if l.Tracker != nil {
		keys, err := l.Tracker.RescueKeys()
		counts = err == nil && len(keys.Keys) > 0 // the service says the error
	}
	if !counts && b.Open == nil && b.Times == 0 {
		return nil, nil
	}
	s := b.Status(l.Up())
	if code && counts {
		s.Code = b.Code
	}
	return s, nil
}
