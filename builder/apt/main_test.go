// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"os"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
)

func TestMain(m *testing.M) {
	root.Enter()
	os.Exit(m.Run())
}
