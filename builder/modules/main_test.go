// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"testing"

	"github.com/caisson-os/caisson/builder/root"
)

func TestMain(m *testing.M) {
	root.Enter() // in a process that is to run a program of a layer
	m.Run()
}
