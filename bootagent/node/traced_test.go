// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/caisson-os/caisson/bootagent/session"
	"github.com/caisson-os/caisson/test/traces"
)

// traced has a node's decisions gathered where somebody asks for traces.
func traced(o session.Options) session.Options {
	o.Decided = traces.Into()
	return o
}
