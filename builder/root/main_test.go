// SPDX-License-Identifier: Apache-2.0

package root

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Enter()
	os.Exit(m.Run())
}
