// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/caisson-os/caisson/spec"
)

// Confirm returns what is wrong with the time that an operator has to confirm a change:
// less than it takes to log in, or so long that nobody waits for its end.
func Confirm(c *spec.Confirm) error {
	if c != nil && (c.Within < 10 || c.Within > 24*60*60) {
		return fmt.Errorf("a change is confirmed within 10 s to 24 h, not %d s", c.Within)
	}
	return nil
}
