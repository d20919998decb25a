// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"fmt"
	"os"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
)

// sharedCache is one cache for the tests that need not build from nothing:
// packages are fetched once, and the base is made once.
var sharedCache string

func TestMain(m *testing.M) {
	root.Enter()
	if os.Getenv(inNamespace) != "" {
		if err := (order{}).fill(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := 1
	func() {
		sharedCache = os.Getenv("CAISSON_TEST_CACHE") // kept, for development
		if sharedCache == "" {
			dir, err := os.MkdirTemp("", "caisson-builder-")
			if err != nil {
				panic(err)
			}
			defer os.RemoveAll(dir) // the next build clears what is left
			sharedCache = dir
		}
		code = m.Run()
	}()
	os.Exit(code)
}
