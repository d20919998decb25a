// SPDX-License-Identifier: Apache-2.0

package root

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// tryEnv makes the test's program say what a build says at its start, with the
// work directory that it names.
const tryEnv = "CAISSON_TEST_TRY"

func TestMain(m *testing.M) {
	Enter()
	if work := os.Getenv(tryEnv); work != "" {
		err := Capable()
		if err == nil {
			err = Try(context.Background(), work)
		}
		if err == nil {
			err = fmt.Errorf("capable")
		}
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}
